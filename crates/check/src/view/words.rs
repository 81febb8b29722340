//! Describes events in words.

use crate::reach::Reach;
use crate::view::names::Names;
use guardrail_trace::event::{Access, Cut, EnterFlags, Global, Head, Kind, StackFrame, level};
use guardrail_trace::file::TraceMeta;
use guardrail_trace::meet::{Meet, MeetOutcome, MeetSide};
use std::collections::HashMap;

/// The state of one ring while its segments are read.
#[derive(Default)]
pub struct Ring {
    pub block: Option<u64>,
    pub pid: Option<u64>,
}

/// The state from earlier events that later descriptions need.
pub struct Wording {
    names: Names,
    /// The addresses of blocks, by their numbers.
    blocks: HashMap<u64, u64>,
}

impl Wording {
    /// The state at the start of a trace.
    pub fn open(meta: &TraceMeta, reach: &Reach) -> Wording {
        Wording { names: Names::open(meta, reach), blocks: HashMap::new() }
    }

    /// The function that runs in a ring at present.
    pub fn function(&self, ring: &Ring) -> Option<String> {
        let address = ring.block.and_then(|block| self.blocks.get(&block)).copied()?;
        self.names.at(address)
    }

    /// An access in words.
    pub fn access(&self, access: Access) -> String {
        let device = if access.io { " of a device" } else { "" };
        let name = self.names.at(access.addr).map_or(String::new(), |name| format!(" ({name})"));
        format!("{} at {:#x}{name}{device}, instruction {}", access.size, access.addr, access.insn)
    }

    /// Describes a record. The function keeps its data on the ring, blocks, threads and modules for later
    /// records.
    pub fn record(&mut self, ring: &mut Ring, head: Head, operands: &[u64]) -> Words {
        let word = |i: usize| operands.get(i).copied().unwrap_or(0);
        match head.kind {
            Kind::Block => {
                ring.block = Some(head.large);
                let address = self.blocks.get(&head.large).copied();
                let place = address.map_or("never defined".to_owned(), |address| self.place(address));
                Words::new(format!("{} {place}", head.large))
            }
            Kind::BlockDef => {
                self.blocks.insert(head.large, word(0));
                Words::new(format!("{} {}, {} bytes", head.large, self.place(word(0)), word(1)))
            }
            Kind::Enter => {
                ring.pid = Some(word(3));
                let flags = head.small;
                let irq = if flags & EnterFlags::INTERRUPTS_ON != 0 { "on" } else { "off" };
                let level = level(head.large as u32);
                let mut text =
                    format!("{} {level}, interrupts {irq}, rax {:#x}", self.names.thread(word(3)), word(2));
                if flags & EnterFlags::ARGS != 0 {
                    text.push_str(&format!(
                        ", called from {} with {}",
                        self.place(word(10)),
                        list(operands, 4, 6)
                    ));
                }
                text.push_str(&above(flags, operands));
                Words::new(text)
            }
            Kind::Stack => Words::new(self.stack(head.large, operands)),
            Kind::Call => {
                let how = if head.small & 1 != 0 { "jump to" } else { "call of" };
                let target = self.place(head.address());
                Words {
                    text: format!("{how} {target} with {}", list(operands, 1, 6)),
                    function: Some(target),
                }
            }
            Kind::Discontinuity => {
                let what = if head.small == 1 { "interrupt" } else { "exception" };
                let fault = if word(1) != 0 { format!(", CR2 {:#x}", word(1)) } else { String::new() };
                Words::new(format!(
                    "{what} at {}, handler {}{fault}",
                    self.place(head.address()),
                    self.place(word(0))
                ))
            }
            Kind::HookCall => {
                let name = self.names.hook(head.large);
                let count = usize::from(head.small);
                let text = format!("{name}({}) from {}", list(operands, 3, count), self.place(word(2)));
                Words { text, function: Some(name) }
            }
            Kind::HookRet => {
                let name = self.names.hook(head.large);
                Words { text: format!("{name} = {:#x}", word(1)), function: Some(name) }
            }
            Kind::ModuleLoad | Kind::OtherModule => {
                let regions = 9 + 3 * usize::from(head.small);
                let name = text_of(operands.get(1..9).unwrap_or_default());
                self.names.load(&name, operands.get(regions..).unwrap_or_default());
                let mut text = format!("{name} at {:#x}", head.address());
                for region in operands.get(9..regions).unwrap_or_default().chunks_exact(3) {
                    text.push_str(&format!(", {:#x}..{:#x}", region[0], region[0].wrapping_add(region[1])));
                }
                Words::new(text)
            }
            Kind::ModuleFree => Words::new(format!("{:#x}..{:#x}", word(0), word(1))),
            Kind::ModuleUnload | Kind::OtherUnload => Words::new(format!("{:#x}", head.address())),
            Kind::Port => {
                let (port, insn) = (head.large & 0xffff, head.large >> 16);
                let way = if head.small & 0x80 != 0 { "out" } else { "in" };
                Words::new(format!("{way} {} at port {port:#x}, instruction {insn}", head.small & 0x7f))
            }
            Kind::Thread => {
                let name = text_of(operands.get(1..).unwrap_or_default());
                self.names.add_thread(head.large, &name);
                Words::new(format!("{name}/{}, task {:#x}", head.large, word(0)))
            }
            Kind::Global => {
                let global = Global::from_small(head.small);
                if global == Some(Global::Slide) {
                    self.names.set_slide(word(0));
                }
                let name = global.map_or("unknown".to_owned(), |global| format!("{global:?}"));
                Words::new(format!("{name} = {:#x}", word(0)))
            }
            Kind::Return => Words::new(format!("rax {:#x}", word(0))),
            Kind::List => {
                let words = operands.get(2..).unwrap_or_default();
                Words::new(format!("of {}: {}", self.names.hook(head.large), list(words, 0, words.len())))
            }
            Kind::Meet => Words::new(Meet::decode(head, operands).map_or(String::new(), |m| self.meet(&m))),
            Kind::Cut => Words::new(cut(head)),
            Kind::End => Words::new(String::new()),
            Kind::Rep => Words::new(format!("count {}, from {:#x}, to {:#x}", word(0), word(1), word(2))),
        }
    }

    fn meet(&self, meet: &Meet) -> String {
        let side = |side: &MeetSide| {
            let way = if side.store { "write" } else { "read" };
            let (place, level) = (self.place(side.pc), level(side.preempt_count));
            format!("{way} of {} at {:#x} by {place} on CPU {}, {level}", side.size, side.address, side.cpu)
        };
        let pair = meet.pair.map_or("sample".to_owned(), |pair| format!("pair {pair}"));
        if meet.outcome == MeetOutcome::Totals {
            return format!("{pair}: the sides ran {} and {} times", meet.arrivals[0], meet.arrivals[1]);
        }
        let mut text = format!("{pair}, {:?}: {}", meet.outcome, side(&meet.held));
        if meet.other.pc != 0 {
            text.push_str(&format!(" and {}", side(&meet.other)));
        }
        for (value, when) in meet.values.iter().zip(["before", "after the one", "after both"]) {
            if let Some(value) = value {
                text.push_str(&format!(", {value:#x} {when}"));
            }
        }
        format!("{text}; {} spins, {} µs", meet.spins, meet.nanos / 1000)
    }

    fn stack(&self, number: u64, words: &[u64]) -> String {
        let frame = |&word: &u64| {
            let frame = StackFrame::decode(word);
            let how = if frame.interrupted { "interrupted " } else { "" };
            format!("{how}{}", self.place(frame.address))
        };
        let frames: Vec<String> = words.iter().map(frame).collect();
        format!("{number}: {}", frames.join(" < "))
    }

    fn place(&self, address: u64) -> String {
        self.names.at(address).unwrap_or_else(|| format!("{address:#x}"))
    }
}

/// An event in words, and the function that it names besides the running one.
pub struct Words {
    /// The description of the event.
    pub text: String,
    /// The function that the event names; `None` where it names none.
    pub function: Option<String>,
}

impl Words {
    fn new(text: String) -> Words {
        Words { text, function: None }
    }
}

/// The end of a block before its last instruction, in words.
fn cut(head: Head) -> String {
    match head.small {
        Cut::AGAIN_ACCESS => "the access waits, and comes again".to_owned(),
        Cut::AGAIN_PORT => "the access to a port waits, and comes again".to_owned(),
        _ => match head.large.checked_sub(1) {
            Some(last) => format!("after instruction {last}"),
            None => "before its first instruction".to_owned(),
        },
    }
}

/// The number of the stack above an entry, in words; empty where the entry has none.
fn above(flags: u8, operands: &[u64]) -> String {
    let number = operands.last().filter(|_| flags & EnterFlags::STACK != 0);
    number.map_or_else(String::new, |number| format!(", stack {number}"))
}

fn list(words: &[u64], from: usize, count: usize) -> String {
    let words: Vec<String> = words.iter().skip(from).take(count).map(|word| format!("{word:#x}")).collect();
    words.join(", ")
}

/// The text in NUL-padded words; control characters are dropped.
fn text_of(words: &[u64]) -> String {
    let bytes: Vec<u8> =
        words.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_follow_the_count() {
        assert_eq!(level(1), "process");
        assert_eq!(level(0x101), "softirq");
        assert_eq!(level(0x1_0100), "hardirq");
        assert_eq!(level(0x10_0000), "nmi");
    }

    #[test]
    fn names_are_clean() {
        assert_eq!(text_of(&[u64::from_le_bytes(*b"ab\x1bcd\0\0\0"), 7]), "ab?cd");
    }
}
