"""Check the model of docs/model, and real runs against it: `make model-test`."""
