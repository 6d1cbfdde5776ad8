"""What people read: text, tables, figures and documents, all rendered from the same result objects."""
