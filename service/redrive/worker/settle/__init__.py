"""Record how attempts ended, in the same round trip as the next claim."""
