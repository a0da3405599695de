//! The format of the journal's files.
