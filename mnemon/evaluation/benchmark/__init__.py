"""One benchmark for all: every memory on the same data, the same nets, the same questions.

`protocol` says what is trained and how much is asked, `grid` which cells there are, `workers` works on several at once,
`cell` trains and asks one of them with the images of `material`, `store` keeps what was found, `parts` and the files it
names ask the questions of `mnemon.evaluation.questions`.
"""
