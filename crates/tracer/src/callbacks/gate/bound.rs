//! Finds the devices whose accesses the gate holds. They are the PCI devices that the kernel binds to a
//! watched driver, and those above a device of another bus that it binds to one. Their data is read from the
//! kernel's own structures.

use crate::state::{Gate, RDI, RSI, Tracer, Vcpu, tracer};
use guardrail_plugin::ranges::{Full, RangeSet};
use guardrail_plugin::with_env;
use guardrail_trace::pci::PciAddress;
use std::ffi::{c_uint, c_void};

/// Type flags of resources (include/linux/ioport.h).
const IORESOURCE_IO: u64 = 0x100;
const IORESOURCE_MEM: u64 = 0x200;
/// Resources per device: six regions and the ROM.
const RESOURCES: u64 = 7;
/// Most devices between a device and the PCI device above it. USB allows seven tiers.
const MOST_PARENTS: usize = 16;

with_env! {
    /// The kernel is about to call a driver's probe function for a PCI device.
    on_probe => probed
}

with_env! {
    /// The kernel is about to bind a driver to a device of any bus.
    on_child_probe => child_probed
}

extern "C" fn probed(index: c_uint, _: *mut c_void, env: *mut u64) {
    let Some(tracer) = tracer() else { return };
    // SAFETY: this is the vCPU's callback.
    let (Some(vcpu), Some(gate)) = (unsafe { tracer.running_at(index, env) }, &tracer.gate) else { return };
    let argument = vcpu.reg(RDI);
    if let Some(device) = bound_device(tracer, gate, vcpu, argument) {
        bind(tracer, gate, vcpu, device);
    }
}

extern "C" fn child_probed(index: c_uint, _: *mut c_void, env: *mut u64) {
    let Some(tracer) = tracer() else { return };
    // SAFETY: this is the vCPU's callback.
    let (Some(vcpu), Some(gate)) = (unsafe { tracer.running_at(index, env) }, &tracer.gate) else { return };
    let (device, driver) = (vcpu.reg(RDI), vcpu.reg(RSI));
    if let Some(device) = device_above(tracer, gate, vcpu, device, driver) {
        bind(tracer, gate, vcpu, device);
    }
}

/// The PCI device that the kernel binds to a watched driver. `None` where the driver is not watched or cannot
/// be read.
fn bound_device(tracer: &Tracer, gate: &Gate, vcpu: &mut Vcpu, argument: u64) -> Option<u64> {
    let layout = gate.config().probe.as_ref()?;
    let driver = vcpu.read_word(argument.wrapping_add(layout.driver), 8)?;
    let probe = vcpu.read_word(driver.wrapping_add(layout.probe), 8)?;
    if !tracer.watched.contains(probe) {
        return None;
    }
    vcpu.read_word(argument.wrapping_add(layout.device), 8)
}

/// The PCI device above a device that the kernel binds to a watched driver. `None` where the driver is not
/// watched, or there is no PCI device above: a PCI device itself is bound by [`on_probe`].
fn device_above(tracer: &Tracer, gate: &Gate, vcpu: &mut Vcpu, device: u64, driver: u64) -> Option<u64> {
    let layout = gate.config().child_probe.as_ref()?;
    let owner = vcpu.read_word(driver.wrapping_add(layout.owner), 8).filter(|owner| *owner != 0)?;
    let exit = vcpu.read_word(owner.wrapping_add(layout.exit), 8)?;
    if !tracer.watched.contains(exit) {
        return None;
    }
    let pci = layout.pci_bus.wrapping_add(tracer.slide()?);
    let mut at = device;
    for level in 0..=MOST_PARENTS {
        if vcpu.read_word(at.wrapping_add(layout.bus), 8)? == pci {
            return (level > 0).then(|| at.wrapping_sub(layout.in_pci_dev));
        }
        at = vcpu.read_word(at.wrapping_add(layout.parent), 8).filter(|parent| *parent != 0)?;
    }
    None
}

/// Adds a PCI device's registers and ports to the gate.
fn bind(tracer: &Tracer, gate: &Gate, vcpu: &mut Vcpu, device: u64) {
    if let Some(Err(Full)) = add_device(tracer, gate, vcpu, device) {
        tracer.give_up("the driver was bound to more devices than the gate can hold accesses to");
    }
}

/// Adds them; `None` where the device cannot be read.
fn add_device(tracer: &Tracer, gate: &Gate, vcpu: &mut Vcpu, device: u64) -> Option<Result<(), Full>> {
    let layout = gate.config().probe.as_ref()?;
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
