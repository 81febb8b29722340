//! A synthetic PCI device.

use crate::answers::Answers;
use crate::config::{ConfigSpace, Interrupts, SIZE};
use crate::constants::Constants;
use crate::ids::PciIds;
use crate::shape::{Shape, VECTORS};
use crate::ticks::Ticks;
use guardrail_gate::device::{Device, Interrupt, Layout, Operations};
use guardrail_gate::{Error, Result, Space};
use guardrail_usb_device::mixed;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

pub use crate::config::PLAN;

/// The time between two interrupts.
const EVERY: Duration = Duration::from_millis(20);
/// The most interrupts of one plan: a handler that never finds the device content must not keep the guest busy.
const MAX_INTERRUPTS: u32 = 200;

/// A device with IDs, a shape, and answers by a plan. It does no DMA.
#[derive(Debug)]
pub struct PciDevice {
    ids: PciIds,
    shape: Shape,
    constants: Arc<Constants>,
    layout: Layout,
    config: ConfigSpace,
    answers: Answers,
    ticks: Ticks,
    /// Interrupts of this plan so far; none come before the driver has written to the device.
    interrupts: Option<u32>,
    /// The line is raised.
    raised: bool,
    /// The driver has accessed a register since the line was raised last. QEMU lowers the guest's line at such an access
    /// alone: a handler that makes none would be called for ever.
    accessed: bool,
}

impl PciDevice {
    /// A device that answers by plan 0 until the guest chooses another.
    pub fn new(ids: PciIds, shape: Shape, constants: Arc<Constants>) -> Result<PciDevice> {
        let ticks = Ticks::start(EVERY)
            .map_err(|error| Error::Process { what: format!("could not start a clock: {error}") })?;
        Ok(PciDevice {
            ids,
            shape,
            layout: Layout {
                bars: shape.bars.map(|bar| bar.size()),
                config: SIZE as u32,
                line: true,
                msi: u32::from(shape.modern),
                msi_x: if shape.modern { VECTORS.into() } else { 0 },
            },
            config: ConfigSpace::new(ids, shape),
            answers: Answers::new(0, Arc::clone(&constants)),
            constants,
            ticks,
            interrupts: None,
            raised: false,
            accessed: true,
        })
    }

    /// Begins a plan as if nothing had been written.
    fn begin(&mut self, plan: u16) {
        self.answers = Answers::new(plan, Arc::clone(&self.constants));
        self.interrupts = None;
    }

    /// The interrupt that is due, if the driver can get one.
    fn due(&mut self) -> Option<Interrupt> {
        let number = self.interrupts.filter(|number| *number < MAX_INTERRUPTS)?;
        let interrupt = match self.config.interrupts(self.shape) {
            Interrupts::None => return None,
            Interrupts::Line if !self.accessed => return None,
            Interrupts::Line => Interrupt::Line(true),
            Interrupts::Msi => Interrupt::Msi(0),
            Interrupts::MsiX => Interrupt::MsiX((mixed(number.into()) % u64::from(VECTORS)) as u32),
        };
        self.interrupts = Some(number + 1);
        Some(interrupt)
    }
}

impl Device for PciDevice {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn read(&mut self, space: Space, offset: u64, into: &mut [u8]) -> Result<()> {
        match space {
            Space::Config => self.config.read(offset, into),
            Space::Bar(bar) => {
                self.accessed = true;
                self.answers.read(bar, offset, into);
            }
        }
        Ok(())
    }

    fn write(&mut self, space: Space, offset: u64, bytes: &[u8]) -> Result<()> {
        match space {
            Space::Config => {
                if self.config.write(offset, bytes) {
                    self.begin(self.config.plan());
                }
            }
            Space::Bar(bar) => {
                self.accessed = true;
                self.answers.write(bar, offset, bytes);
                self.interrupts.get_or_insert(0);
            }
        }
        Ok(())
    }

    fn reset(&mut self) -> Result<()> {
        let plan = self.config.plan();
        self.config = ConfigSpace::new(self.ids, self.shape);
        self.config.write(PLAN, &plan.to_le_bytes());
        self.begin(plan);
        Ok(())
    }

    fn cut(&mut self) -> Result<()> {
        Ok(())
    }

    fn sources(&self) -> Vec<RawFd> {
        vec![self.ticks.descriptor()]
    }

    fn interrupts(&mut self, source: Option<usize>, deliver: &mut dyn FnMut(Interrupt)) -> Result<()> {
        // A handler has asked the device, or has had its time: it wants no attention any more.
        if std::mem::take(&mut self.raised) {
            self.config.show_interrupt(false);
            deliver(Interrupt::Line(false));
        }
        if source.is_some()
            && self.ticks.take()
            && let Some(interrupt) = self.due()
        {
            self.raised = interrupt == Interrupt::Line(true);
            self.accessed &= !self.raised;
            self.config.show_interrupt(self.raised);
            deliver(interrupt);
        }
        Ok(())
    }

    fn operations(&self) -> Operations {
        Operations::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::testing::{MODERN, OLD};

    fn device(shape: Shape) -> PciDevice {
        let ids = PciIds { vendor: 0x8086, device: 0x100e, subvendor: 1, subdevice: 2, class: 0x02_0000 };
        PciDevice::new(ids, shape, Arc::default()).unwrap()
    }

    fn read(device: &mut PciDevice, space: Space, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        device.read(space, offset, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn the_guest_chooses_a_plan_and_a_reset_keeps_it() {
        let mut device = device(MODERN);
        assert_eq!(read(&mut device, Space::Bar(0), 0), 0);
        device.write(Space::Bar(0), 0, &[1]).unwrap();
        device.write(Space::Config, PLAN, &[2]).unwrap();
        assert_eq!(read(&mut device, Space::Bar(0), 0), u32::MAX);
        device.write(Space::Config, 4, &[6]).unwrap();
        device.reset().unwrap();
        assert_eq!(
            (read(&mut device, Space::Config, 4) & 0xffff, read(&mut device, Space::Bar(0), 8)),
            (0, u32::MAX)
        );
    }

    #[test]
    fn interrupts_come_once_the_driver_has_written_and_end() {
        let mut device = device(OLD);
        let mut heard = Vec::new();
        let tick = |device: &mut PciDevice, heard: &mut Vec<Interrupt>| {
            std::thread::sleep(EVERY * 2);
            device.interrupts(Some(0), &mut |interrupt| heard.push(interrupt)).unwrap();
        };
        tick(&mut device, &mut heard);
        assert_eq!(heard, []);
        device.write(Space::Bar(0), 0, &[1]).unwrap();
        tick(&mut device, &mut heard);
        assert_eq!(heard, [Interrupt::Line(true)]);
        device.interrupts(None, &mut |interrupt| heard.push(interrupt)).unwrap();
        assert_eq!(heard, [Interrupt::Line(true), Interrupt::Line(false)]);
        device.interrupts = Some(MAX_INTERRUPTS);
        tick(&mut device, &mut heard);
        assert_eq!(heard.len(), 2);
    }
}
