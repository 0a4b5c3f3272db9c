"""The judge: how good models are on attempts that came after everything they were fitted on."""
