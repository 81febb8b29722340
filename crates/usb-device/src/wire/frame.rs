//! Frames of messages in a stream of bytes.

use super::kind;
use crate::error::Error;

/// The longest message without its header that is accepted, in bytes. Drivers send much less at once.
const LONGEST: usize = 4 << 20;

/// One message as it came: its type, id and body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub kind: u32,
    pub id: u64,
    pub body: Vec<u8>,
}

/// Cuts a stream into messages.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    /// True from the first message on, which has a short id; all others have long ones.
    greeted: bool,
}

impl Frames {
    /// Adds what was read. The caller takes all messages out before it adds more, so that memory stays bounded.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, if it is there in full.
    pub fn take(&mut self) -> Result<Option<Frame>, Error> {
        let header = if self.greeted { 16 } else { 12 };
        if self.bytes.len() < header {
            return Ok(None);
        }
        let word = |at: usize| u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap_or_default());
        let (kind, length) = (word(0), word(4));
        let id = u64::from(word(8)) | if self.greeted { u64::from(word(12)) << 32 } else { 0 };
        if !self.greeted && kind != kind::HELLO {
            return Err(Error::protocol(format!("the first message has type {kind} and is no greeting")));
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > LONGEST {
            return Err(Error::protocol(format!(
                "a message of type {kind} has {length} bytes, more than {LONGEST}"
            )));
        }
        if self.bytes.len() < header + length {
            return Ok(None);
        }
        let rest = self.bytes.split_off(header + length);
        let mut body = std::mem::replace(&mut self.bytes, rest);
        body.drain(..header);
        self.greeted = true;
        Ok(Some(Frame { kind, id, body }))
    }
}
