//! Finds the devices whose accesses the gate holds. They are the devices that the kernel binds to a
//! watched driver, and their data is read from the kernel's own structures.

use crate::state::{Gate, RDI, Tracer, Vcpu, tracer};
use guardrail_plugin::ranges::{Full, RangeSet};
use guardrail_plugin::with_env;
use guardrail_trace::pci::PciAddress;
use std::ffi::{c_uint, c_void};

/// Type flags of resources (include/linux/ioport.h).
const IORESOURCE_IO: u64 = 0x100;
const IORESOURCE_MEM: u64 = 0x200;
/// Resources per device: six regions and the ROM.
const RESOURCES: u64 = 7;

with_env! {
    /// The kernel is about to call a driver's probe function for a PCI device.
    on_probe => probed
}

extern "C" fn probed(index: c_uint, _: *mut c_void, env: *mut u64) {
    let Some(tracer) = tracer() else { return };
    // SAFETY: this is the vCPU's callback.
    let (Some(vcpu), Some(gate)) = (unsafe { tracer.running_at(index, env) }, &tracer.gate) else { return };
    let argument = vcpu.reg(RDI);
    if let Some(Err(Full)) = bind(tracer, gate, vcpu, argument) {
        tracer.give_up("the driver was bound to more devices than the gate can hold accesses to");
    }
}

/// Adds the device's registers and ports to the gate. `None` where the driver is not watched or cannot
/// be read.
fn bind(tracer: &Tracer, gate: &Gate, vcpu: &mut Vcpu, argument: u64) -> Option<Result<(), Full>> {
    let layout = gate.config().probe.as_ref()?;
    let driver = vcpu.read_word(argument.wrapping_add(layout.driver), 8)?;
    let probe = vcpu.read_word(driver.wrapping_add(layout.probe), 8)?;
    if !tracer.watched.contains(probe) {
        return None;
    }
    let device = vcpu.read_word(argument.wrapping_add(layout.device), 8)?;
    let devfn = vcpu.read_word(device.wrapping_add(layout.devfn), 4)? as u8;
    let bus = vcpu.read_word(device.wrapping_add(layout.bus), 8)?;
    let bus = vcpu.read_word(bus.wrapping_add(layout.number), 1)? as u8;
    let address = PciAddress { bus, devfn };
    let tag = u64::from(address.id()) | 1 << 16;
    let mut resources = Vec::new();
    for i in 0..RESOURCES {
        let at = device.wrapping_add(layout.resources).wrapping_add(i * layout.resource_size);
        let [start, end, flags] = layout.resource.map(|offset| vcpu.read_word(at.wrapping_add(offset), 8));
        resources.push((start?, end?, flags?));
    }
    // Address ranges change only under this lock.
    let _changing = tracer.control(vcpu);
    if !tracer.log().add_gated(address) {
        return Some(Err(Full));
    }
    let forgotten = [&gate.memory, &gate.ports].map(|set| set.remove(0, u64::MAX, tag).map(|_| ()));
    if let Some(full) = forgotten.into_iter().find(Result::is_err) {
        return Some(full);
    }
    Some(resources.into_iter().try_for_each(|resource| add(gate, tag, resource)))
}

fn add(gate: &Gate, tag: u64, (start, end, flags): (u64, u64, u64)) -> Result<(), Full> {
    let set: &RangeSet = match flags {
        flags if flags & IORESOURCE_MEM != 0 => &gate.memory,
        flags if flags & IORESOURCE_IO != 0 => &gate.ports,
        _ => return Ok(()),
    };
    match start {
        0 => Ok(()),
        _ => set.add(start, end.saturating_add(1), tag),
    }
}

/// Whether accesses to the configuration space of the device at this address are held.
pub fn is_bound(tracer: &Tracer, bus: u64, devfn: u64) -> bool {
    tracer.log().gated().iter().any(|device| (u64::from(device.bus), u64::from(device.devfn)) == (bus, devfn))
}

/// Callback before the meaning of device addresses changes.
pub extern "C" fn on_remap(_: c_uint, _: *mut c_void) {
    if let Some(gate) = tracer().and_then(|tracer| tracer.gate.as_ref()) {
        gate.remapped();
    }
}
