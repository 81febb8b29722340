//! Remote NDIS: messages in control requests of network interfaces, each with an answer of its own form.

use crate::wire::Control;

/// Types of messages, and the bit of an answer.
const INITIALIZE: u32 = 2;
const QUERY: u32 = 4;
const SET: u32 = 5;
const KEEP_ALIVE: u32 = 8;
const ANSWER: u32 = 0x8000_0000;

/// The class request for an answer.
const GET_ENCAPSULATED_RESPONSE: u8 = 1;

/// Most bytes of one transfer.
const MOST_TRANSFER: u32 = 1580;

/// The address of the network interface.
const ADDRESS: [u8; 6] = [0x02, 0x47, 0x52, 0x44, 0x52, 0x4c];

/// The answer that the host is to get, if it has sent a message.
#[derive(Debug, Default)]
pub(super) struct State {
    answer: Option<Vec<u8>>,
}

impl State {
    /// Makes the answer, where `message` has this form.
    pub fn note(&mut self, message: &[u8]) {
        let word =
            |at: usize| message.get(at..at + 4).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes);
        let (Some(kind), Some(length), Some(id)) = (word(0), word(4), word(8)) else { return };
        if usize::try_from(length) != Ok(message.len())
            || ![INITIALIZE, QUERY, SET, KEEP_ALIVE].contains(&kind)
        {
            return;
        }
        let mut words = vec![kind | ANSWER, 0, id, 0];
        let mut tail = Vec::new();
        match kind {
            // Version 1.0, connectionless, medium 802.3, one packet of that size, aligned to bytes, no list of families.
            INITIALIZE => words.extend([1, 0, 1, 0, 1, MOST_TRANSFER, 0, 0, 0]),
            // The length of the value, and where it is from the id on.
            QUERY => {
                words.extend([6, 16]);
                tail.extend(ADDRESS);
            }
            _ => {}
        }
        let mut answer: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).chain(tail).collect();
        let length = u32::try_from(answer.len()).unwrap_or(0).to_le_bytes();
        answer[4..8].copy_from_slice(&length);
        self.answer = Some(answer);
    }

    /// The answer, where the host asks for it and there is one.
    pub fn answer(&mut self, request: &Control) -> Option<Vec<u8>> {
        if request.request != GET_ENCAPSULATED_RESPONSE || request.kind != 0xa1 {
            return None;
        }
        self.answer.take()
    }
}
