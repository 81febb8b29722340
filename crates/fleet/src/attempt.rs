//! The identity of one attempt at a job.
//!
//! A failure is counted by its attempt and not by its arrival: a note that comes again after its reader was killed counts once.

use serde::{Deserialize, Serialize};

/// The number of hexadecimal digits.
const DIGITS: usize = 16;

/// One attempt at a job, by a random number of 16 hexadecimal digits. It is safe as the name of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Attempt(String);

impl Attempt {
    /// An attempt that begins now.
    pub fn begin() -> Attempt {
        Attempt(crate::random())
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Attempt {
    type Error = String;

    fn try_from(text: String) -> Result<Attempt, String> {
        match text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            true => Ok(Attempt(text)),
            false => Err(format!("an attempt has {DIGITS} hexadecimal digits")),
        }
    }
}

impl From<Attempt> for String {
    fn from(attempt: Attempt) -> String {
        attempt.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_no_path() {
        let attempt = Attempt::begin();
        assert_eq!(Attempt::try_from(attempt.as_str().to_owned()).unwrap(), attempt);
        assert_ne!(Attempt::begin(), attempt);
        for bad in ["", "../../../../etc/x", "0123456789abcde", "0123456789abcdeg"] {
            assert!(Attempt::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
