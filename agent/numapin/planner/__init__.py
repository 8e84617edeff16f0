"""Pure decisions: model values in, model values out."""
