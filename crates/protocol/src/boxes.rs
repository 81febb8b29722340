//! The numbers of messages: every message of every protocol is a mailbox with a number of its own.

use crate::Machine;
use crate::model::Direction;

/// How many incoming messages all protocols may have together: a mask of them has so many bits.
pub const INCOMING: usize = 64;
/// How many messages all protocols may have together.
const ALL: usize = 1024;

/// Which number a message has. Incoming messages have the numbers from 0, outgoing ones those from [`INCOMING`], in the
/// order of the protocols and of their files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boxes {
    /// For each protocol and message its number.
    numbers: Vec<Vec<u16>>,
    /// For each number its protocol and message.
    owners: Vec<Option<(usize, usize)>>,
}

impl Boxes {
    /// Numbers all messages, or says why that fails.
    pub fn new(machines: &[Machine]) -> Result<Boxes, String> {
        let count = |direction: Direction| {
            let messages = machines.iter().flat_map(Machine::messages);
            messages.filter(|message| message.direction == direction).count()
        };
        let (incoming, outgoing) = (count(Direction::In), count(Direction::Out));
        if incoming > INCOMING {
            return Err(format!(
                "all protocols together have {incoming} incoming messages; expected at most {INCOMING}"
            ));
        }
        if outgoing > ALL - INCOMING {
            return Err(format!(
                "all protocols together have {outgoing} outgoing messages; expected at most {}",
                ALL - INCOMING
            ));
        }
        let mut owners = vec![None; INCOMING + outgoing];
        let (mut next_in, mut next_out) = (0_u16, INCOMING as u16);
        let mut numbers = Vec::new();
        for (protocol, machine) in machines.iter().enumerate() {
            let mut row = Vec::new();
            for (message, declared) in machine.messages().iter().enumerate() {
                let next = match declared.direction {
                    Direction::In => &mut next_in,
                    Direction::Out => &mut next_out,
                };
                owners[usize::from(*next)] = Some((protocol, message));
                row.push(*next);
                *next += 1;
            }
            numbers.push(row);
        }
        Ok(Boxes { numbers, owners })
    }

    /// The number of a message of a protocol.
    pub fn number(&self, protocol: usize, message: usize) -> Option<u16> {
        self.numbers.get(protocol)?.get(message).copied()
    }

    /// The protocol and the message that have a number.
    pub fn owner(&self, number: usize) -> Option<(usize, usize)> {
        *self.owners.get(number)?
    }

    /// One more than the highest number.
    pub fn end(&self) -> usize {
        self.owners.len()
    }
}

/// The C name of a message's number, as `PCI_PROBE`.
pub fn c_name(protocol: &str, message: &str) -> String {
    format!("{protocol}_{message}").to_ascii_uppercase()
}
