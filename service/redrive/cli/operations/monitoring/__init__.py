"""Commands that show how Redrive is doing: check, series and top."""
