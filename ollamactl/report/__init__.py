"""Results to terminal, JSON envelope or HTML. No decisions here."""
