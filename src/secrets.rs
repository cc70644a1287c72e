//! Secret values, and their removal from texts. Pure.

use std::borrow::Cow;
use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};

/// The length in bytes below which a value is not redacted. Shorter values are placeholders such as `none`, or words
/// that a message may need.
pub(crate) const MIN_LENGTH: usize = 6;
const MARK: &str = "[redacted]";

/// Values that no text may contain.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Vec<SecretString>);

impl Secrets {
    /// Adds a value. Values shorter than [`MIN_LENGTH`] are left out.
    pub(crate) fn add(&mut self, secret: SecretString) {
        let len = secret.expose_secret().len();
        // One value may contain another, so the longest come first.
        let start = self.0.partition_point(|other| other.expose_secret().len() > len);
        let end = self.0.partition_point(|other| other.expose_secret().len() >= len);
        let is_new = self.0[start..end].iter().all(|other| other.expose_secret() != secret.expose_secret());
        if len >= MIN_LENGTH && is_new {
            self.0.insert(end, secret);
        }
    }

    /// Returns whether there are no values.
    #[cfg(feature = "mcp-client")]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text with a mark in place of each value.
    pub(crate) fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.0.iter().map(|secret| secret.expose_secret()).fold(Cow::Borrowed(text), |text, secret| {
            match text.contains(secret) {
                true => Cow::Owned(text.replace(secret, MARK)),
                false => text,
            }
        })
    }
}

/// Shows the number of values, and none of them.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_hidden_the_longest_first_and_words_are_left_alone() {
        let mut secrets = Secrets::default();
        for value in ["canary", "canary-0123456789", "none", "", "canary"] {
            secrets.add(value.into());
        }
        let text = "none of canary-0123456789, canary or canar";
        assert_eq!(secrets.redact(text), "none of [redacted], [redacted] or canar");
        assert!(matches!(secrets.redact("nothing here"), Cow::Borrowed("nothing here")));
        assert_eq!(format!("{secrets:?}"), "Secrets(2)");
    }
}
