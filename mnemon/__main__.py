from mnemon.cli import app

app()
