//! A provider that says what a script says.
