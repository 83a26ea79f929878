"""One benchmark for all: every memory on the same data, the same nets, the same questions.

`protocol` says what is trained and how much is asked, `plan` which cells there are, `cell` trains and asks one of them,
`store` keeps what was found, `parts` and the files it names ask the questions of `mnemon.evaluation.questions`.
"""
