//! The bulk-only transport of storage: commands in wrappers, and the status after each.

use std::collections::VecDeque;

/// The signatures of a command and of a status, and their lengths.
const COMMAND: &[u8; 4] = b"USBC";
const STATUS: &[u8; 4] = b"USBS";
const COMMAND_LENGTH: usize = 31;

/// SCSI commands that have answers of their own.
const REQUEST_SENSE: u8 = 0x03;
const INQUIRY: u8 = 0x12;
const READ_CAPACITY: u8 = 0x25;

/// The disk: blocks of this size, and the number of the last.
const BLOCK: u32 = 512;
const LAST_BLOCK: u32 = 2047;

/// Most bytes that one command is given.
const MOST: usize = 64 << 10;

/// Most answers that wait; a host sends the next command after the status of the one before.
const MOST_ANSWERS: usize = 8;

/// What the host is to get.
#[derive(Debug, Default)]
pub(super) struct Storage {
    answers: VecDeque<Vec<u8>>,
    /// Bytes that the host still sends for the last command.
    expected: usize,
}

impl Storage {
    /// Takes a command, or the data of one; false where the bytes are neither.
    pub fn takes(&mut self, bytes: &[u8]) -> bool {
        if self.expected > 0 {
            self.expected = self.expected.saturating_sub(bytes.len());
            return true;
        }
        if bytes.len() != COMMAND_LENGTH || !bytes.starts_with(COMMAND) {
            return false;
        }
        let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap_or_default());
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.answers.clear();
        if bytes[12] & 0x80 == 0 {
            self.expected = length;
        } else if length > 0 {
            self.push(content(&bytes[15..], length.min(MOST)));
        }
        let status = [STATUS, &bytes[4..8], &[0; 5]].concat();
        self.push(status);
        true
    }

    fn push(&mut self, answer: Vec<u8>) {
        if self.answers.len() < MOST_ANSWERS {
            self.answers.push_back(answer);
        }
    }

    /// The next that the host is to get, if it has sent a command.
    pub fn next(&mut self) -> Option<Vec<u8>> {
        self.answers.pop_front()
    }
}

/// The answer to a SCSI command, of `length` bytes.
fn content(command: &[u8], length: usize) -> Vec<u8> {
    let mut answer = match command.first() {
        Some(&INQUIRY) => {
            let mut answer = vec![0, 0x80, 4, 2, 31, 0, 0, 0];
            answer.extend(b"GUARD   SYNTHETIC DISK  1.00");
            answer
        }
        Some(&READ_CAPACITY) => [LAST_BLOCK.to_be_bytes(), BLOCK.to_be_bytes()].concat(),
        Some(&REQUEST_SENSE) => vec![0x70, 0, 0, 0, 0, 0, 0, 10],
        _ => Vec::new(),
    };
    answer.resize(length, 0);
    answer
}
