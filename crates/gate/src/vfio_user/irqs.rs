//! Delivers interrupts: the driver VM gives a counter for each, which the server signals.

use super::message::{INVALID, IrqAction, Refusal, SetIrqs};
use crate::device::{Interrupt, Layout};
use crate::sys::Event;
use std::os::fd::OwnedFd;

/// Kinds of interrupts, as the protocol numbers them.
pub const LINE: u32 = 0;
/// Message-signaled interrupts.
pub const MSI: u32 = 1;
/// Message-signaled interrupts with a table.
pub const MSI_X: u32 = 2;
/// The number of kinds.
pub const KINDS: u32 = 3;

/// A vector: its counter, and whether an interrupt is pending while no counter is connected.
#[derive(Debug, Default)]
struct Vector {
    to: Option<Event>,
    pending: bool,
}

impl Vector {
    /// Signals the counter; true where the guest receives the interrupt now.
    fn signal(&mut self) -> bool {
        self.pending = self.to.is_none();
        self.to.as_ref().inspect(|event| event.signal()).is_some()
    }
}

/// All interrupts of a device.
#[derive(Debug, Default)]
pub struct Irqs {
    line: Vector,
    /// The line is raised at present.
    level: bool,
    /// The guest was notified and has not unmasked the line since.
    masked: bool,
    msi: Vec<Vector>,
    msi_x: Vec<Vector>,
}

impl Irqs {
    /// The interrupts of a device with this layout.
    pub fn new(layout: &Layout) -> Irqs {
        let vectors = |count: u32| (0..count).map(|_| Vector::default()).collect();
        Irqs { msi: vectors(layout.msi), msi_x: vectors(layout.msi_x), ..Irqs::default() }
    }

    /// Flags and number of a kind of interrupt.
    pub fn info(&self, layout: &Layout, index: u32) -> Option<(u32, u32)> {
        const COUNTER: u32 = 1;
        const MASKABLE: u32 = 2;
        const MASKED_BY_ITSELF: u32 = 4;
        const FIXED: u32 = 8;
        Some(match index {
            LINE => (COUNTER | MASKABLE | MASKED_BY_ITSELF, u32::from(layout.line)),
            MSI => (COUNTER | FIXED, layout.msi),
            MSI_X => (COUNTER, layout.msi_x),
            _ => return None,
        })
    }

    /// Performs a request of the driver VM; returns the number of interrupts that were signaled.
    pub fn set(&mut self, set: SetIrqs, fds: Vec<OwnedFd>) -> Result<u64, Refusal> {
        let vectors = match set.index {
            LINE => std::slice::from_mut(&mut self.line),
            MSI => &mut self.msi,
            MSI_X => &mut self.msi_x,
            _ => return Err(INVALID),
        };
        let range = set.start as usize..(set.start as usize).saturating_add(set.count as usize);
        let mut signaled = 0;
        match set.action {
            IrqAction::Disconnect => vectors.iter_mut().for_each(|vector| *vector = Vector::default()),
            IrqAction::Connect => {
                let chosen = vectors.get_mut(range).ok_or(INVALID)?;
                if fds.is_empty() {
                    chosen.iter_mut().for_each(|vector| vector.to = None);
                } else if fds.len() != chosen.len() {
                    return Err(INVALID);
                }
                for (vector, fd) in chosen.iter_mut().zip(fds) {
                    vector.to = Some(Event::received(fd).ok_or(INVALID)?);
                    if vector.pending {
                        signaled += u64::from(vector.signal());
                    }
                }
                if set.index == LINE {
                    self.masked = false;
                    signaled += self.deliver_line();
                }
            }
            IrqAction::Trigger => {
                let chosen = vectors.get_mut(range).ok_or(INVALID)?;
                signaled += chosen.iter_mut().map(|vector| u64::from(vector.signal())).sum::<u64>();
            }
            IrqAction::Mask | IrqAction::Unmask if set.index == LINE => {
                self.masked = set.action == IrqAction::Mask;
                signaled += self.deliver_line();
            }
            IrqAction::Mask | IrqAction::Unmask => return Err(INVALID),
        }
        Ok(signaled)
    }

    /// Delivers an interrupt of the device; returns the number of interrupts that were signaled.
    pub fn deliver(&mut self, interrupt: Interrupt) -> u64 {
        match interrupt {
            Interrupt::Line(level) => {
                self.level = level;
                self.deliver_line()
            }
            Interrupt::Msi(vector) => {
                self.msi.get_mut(vector as usize).map_or(0, |vector| u64::from(vector.signal()))
            }
            Interrupt::MsiX(vector) => {
                self.msi_x.get_mut(vector as usize).map_or(0, |vector| u64::from(vector.signal()))
            }
        }
    }

    /// The line is level-triggered: as long as it is raised, the guest is notified again after each unmask.
    fn deliver_line(&mut self) -> u64 {
        if !self.level || self.masked || self.line.to.is_none() {
            return 0;
        }
        self.masked = true;
        u64::from(self.line.signal())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, AsRawFd};

    fn counter() -> (Event, OwnedFd) {
        let event = Event::new().unwrap();
        // SAFETY: the descriptor is open for as long as it is borrowed.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(event.as_raw_fd()) };
        let fd = fd.as_fd().try_clone_to_owned().unwrap();
        (event, fd)
    }

    fn irqs() -> Irqs {
        Irqs::new(&Layout { line: true, msi_x: 4, ..Layout::default() })
    }

    fn set(index: u32, start: u32, count: u32, action: IrqAction) -> SetIrqs {
        SetIrqs { index, start, count, action }
    }

    #[test]
    fn a_line_is_told_again_while_it_is_raised() {
        let (event, fd) = counter();
        let mut irqs = irqs();
        irqs.set(set(LINE, 0, 1, IrqAction::Connect), vec![fd]).unwrap();
        assert_eq!(irqs.deliver(Interrupt::Line(true)), 1);
        assert_eq!(irqs.deliver(Interrupt::Line(true)), 0);
        assert_eq!(event.take(), 1);
        assert_eq!(irqs.set(set(LINE, 0, 1, IrqAction::Unmask), vec![]), Ok(1));
        irqs.deliver(Interrupt::Line(false));
        assert_eq!(irqs.set(set(LINE, 0, 1, IrqAction::Unmask), vec![]), Ok(0));
    }

    #[test]
    fn a_vector_that_goes_nowhere_waits() {
        let (event, fd) = counter();
        let mut irqs = irqs();
        assert_eq!(irqs.deliver(Interrupt::MsiX(2)), 0);
        assert_eq!(irqs.set(set(MSI_X, 2, 1, IrqAction::Connect), vec![fd]), Ok(1));
        assert_eq!((event.take(), irqs.deliver(Interrupt::MsiX(2))), (1, 1));
        irqs.set(set(MSI_X, 0, 0, IrqAction::Disconnect), vec![]).unwrap();
        assert_eq!(irqs.deliver(Interrupt::MsiX(2)), 0);
        assert_eq!(irqs.deliver(Interrupt::MsiX(99)), 0);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut irqs = irqs();
        let (_event, fd) = counter();
        assert_eq!(irqs.set(set(MSI_X, 4, 1, IrqAction::Connect), vec![fd]), Err(INVALID));
        let (_event, fd) = counter();
        assert_eq!(irqs.set(set(MSI_X, 0, 2, IrqAction::Connect), vec![fd]), Err(INVALID));
        assert_eq!(irqs.set(set(MSI_X, 0, u32::MAX, IrqAction::Trigger), vec![]), Err(INVALID));
        assert_eq!(irqs.set(set(9, 0, 1, IrqAction::Trigger), vec![]), Err(INVALID));
        assert_eq!(irqs.set(set(MSI, 0, 1, IrqAction::Mask), vec![]), Err(INVALID));
    }
}
