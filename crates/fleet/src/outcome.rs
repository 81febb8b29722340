//! The result of a job as it is stored and sent: a line of JSON, then the body.
//!
//! The head names the job's key and carries a digest over itself and the body. A result that was cut, damaged or filed under
//! another job's name does not match.

use crate::canonical::{canonical, digest};
use crate::job::Key;
use guardrail_host::HostError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name and version of the format.
const SCHEMA: &str = "guardrail-job-result/1";
/// The most bytes of a head.
const MOST_HEAD: usize = 16 << 10;
/// The most bytes of a body.
pub const MOST_BODY: usize = 64 << 20;

/// The result of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The job.
    pub key: Key,
    /// The exit status of what computed it.
    pub status: u8,
    /// How long the computation took, in milliseconds.
    pub milliseconds: u64,
    /// The worker that computed it.
    pub worker: String,
    /// What it printed: a report as JSON, or a rehearsal's digest.
    pub body: Vec<u8>,
}

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    schema: String,
    key: Key,
    status: u8,
    milliseconds: u64,
    worker: String,
    bytes: u64,
    digest: String,
}

impl Head {
    /// The digest that belongs to the other fields and a body.
    fn matching(&self, body: &[u8]) -> String {
        let mut value = serde_json::to_value(self).unwrap_or(Value::Null);
        if let Value::Object(fields) = &mut value {
            fields.remove("digest");
        }
        digest(&[canonical(&value).as_bytes(), body])
    }
}

impl Outcome {
    /// The bytes of the file.
    pub fn write(&self) -> Result<Vec<u8>, HostError> {
        let mut head = Head {
            schema: SCHEMA.to_owned(),
            key: self.key.clone(),
            status: self.status,
            milliseconds: self.milliseconds,
            worker: self.worker.clone(),
            bytes: self.body.len() as u64,
            digest: String::new(),
        };
        head.digest = head.matching(&self.body);
        let mut bytes = serde_json::to_vec(&head).map_err(|error| HostError::Run(error.to_string()))?;
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.body);
        Ok(bytes)
    }

    /// Reads a result of this job; an error says what does not match.
    pub fn read(key: &Key, bytes: &[u8]) -> Result<Outcome, String> {
        let outcome = Outcome::open(bytes)?;
        match outcome.key == *key {
            true => Ok(outcome),
            false => Err(format!("it is the result of job {}", outcome.key)),
        }
    }

    /// Reads a result of any job.
    pub fn open(bytes: &[u8]) -> Result<Outcome, String> {
        let end = bytes.iter().take(MOST_HEAD).position(|byte| *byte == b'\n').ok_or("it has no head")?;
        let head: Head =
            serde_json::from_slice(&bytes[..end]).map_err(|error| format!("its head: {error}"))?;
        let body = &bytes[end + 1..];
        if head.schema != SCHEMA {
            return Err(format!("its format is '{}', not {SCHEMA}", head.schema));
        }
        if head.bytes != body.len() as u64 {
            return Err(format!("it has {} bytes, not {}", body.len(), head.bytes));
        }
        if head.digest != head.matching(body) {
            return Err("its digest does not match".to_owned());
        }
        Ok(Outcome {
            key: head.key,
            status: head.status,
            milliseconds: head.milliseconds,
            worker: head.worker,
            body: body.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_is_seen() {
        let key: Key = "a".repeat(64).parse().unwrap();
        let outcome = Outcome {
            key: key.clone(),
            status: 1,
            milliseconds: 7,
            worker: "w".into(),
            body: b"{\"x\": 0.1}\n".to_vec(),
        };
        let bytes = outcome.write().unwrap();
        assert_eq!(Outcome::read(&key, &bytes).unwrap(), outcome);
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1;
            assert!(Outcome::read(&key, &damaged).is_err(), "byte {place}");
            assert!(Outcome::read(&key, &bytes[..place]).is_err(), "cut at {place}");
        }
        let other: Key = "b".repeat(64).parse().unwrap();
        assert!(Outcome::read(&other, &bytes).unwrap_err().starts_with("it is the result of job aaa"));
        assert!(Outcome::open(&[b'x'; 1 << 20]).is_err());
    }
}
