//! Modules come and go.

use crate::control::LoadedModule;
use crate::ram::Sample;
use crate::tracer::{Tracer, global, tracer};
use crate::vcpu::{RDI, RDX, RSI, Vcpu, word};
use guardrail_trace::config::RegionLayout;
use guardrail_trace::event::{Global, Head, Kind, RegionFlags};
use std::ffi::{c_uint, c_void};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a module's name that are told.
const NAME: usize = 64;
/// Bytes of an ELF symbol, and where in it its value and its type are.
const SYMBOL: usize = 24;
const SYMBOL_VALUE: usize = 8;
const SYMBOL_INFO: usize = 4;
const SYMBOL_IS_FUNCTION: u8 = 2;
/// More symbols than any module has.
const MAX_SYMBOLS: u64 = 1 << 20;
/// Places by which the guest's RAM is found, and their bytes.
const RAM_SAMPLES: usize = 16;
const RAM_SAMPLE: usize = 64;
/// Modules that are not watched: how many are told at a time, and how many symbols of each.
const MAX_OTHERS: usize = 512;
const MAX_OTHER_SYMBOLS: u64 = 1 << 16;

/// A module has been laid out and relocated.
pub extern "C" fn on_load(index: c_uint, _: *mut c_void) {
    let Some(tracer) = tracer() else { return };
    // SAFETY: this is the vCPU's callback.
    let Some(vcpu) = (unsafe { tracer.running(index) }) else { return };
    let module = vcpu.reg(RDI);
    let Some((name, len)) = name(tracer, vcpu, module) else { return };
    if !tracer.config.watch.iter().any(|w| w.as_bytes() == &name[..len]) {
        return other(tracer, vcpu, module, name);
    }
    if let Err(why) = load(tracer, vcpu, module, name) {
        tracer.give_up(&why);
    }
}

/// A module's name and its length.
fn name(tracer: &Tracer, vcpu: &mut Vcpu, module: u64) -> Option<([u8; NAME], usize)> {
    // `struct module` has 56 bytes of name; what follows the first zero is not ours.
    let mut name = [0; NAME];
    name[..56].copy_from_slice(vcpu.read(module.wrapping_add(tracer.config.layout.name), 56)?);
    let len = name.iter().position(|&b| b == 0)?;
    name[len..].fill(0);
    Some((name, len))
}

/// The regions of a module: start, size, flags.
fn regions(tracer: &Tracer, vcpu: &mut Vcpu, module: u64) -> Option<Vec<(u64, u64, u64)>> {
    let region = |region: &RegionLayout| {
        let base = vcpu.read_word(module.wrapping_add(region.base), 8)?;
        Some((base, vcpu.read_word(module.wrapping_add(region.size), 4)?, region.flags))
    };
    tracer.config.layout.regions.iter().map(region).collect()
}

/// Where a module's symbols are, and how many.
fn symbol_table(tracer: &Tracer, vcpu: &mut Vcpu, module: u64) -> (u64, u64) {
    let layout = &tracer.config.layout;
    let table = vcpu.read_word(module.wrapping_add(layout.kallsyms), 8).unwrap_or(0);
    let start = vcpu.read_word(table.wrapping_add(layout.symtab), 8).unwrap_or(0);
    (start, vcpu.read_word(table.wrapping_add(layout.num_symtab), 4).unwrap_or(0))
}

/// The head of a module's record.
fn head(kind: Kind, module: u64, name: &[u8], regions: &[(u64, u64, u64)], symbols: usize) -> Vec<u64> {
    let mut record = vec![Head::encode(kind, regions.len() as u8, module), symbols as u64];
    record.extend(name.chunks(8).map(word));
    record.extend(regions.iter().flat_map(|r| [r.0, r.1, r.2]));
    record
}

/// Tells of a module that is not watched. What cannot be read of it is left out: it is good for names alone.
fn other(tracer: &Tracer, vcpu: &mut Vcpu, module: u64, name: [u8; NAME]) {
    let Some(regions) = regions(tracer, vcpu, module) else { return };
    let (start, count) = symbol_table(tracer, vcpu, module);
    let values = match count <= MAX_OTHER_SYMBOLS {
        true => symbols(vcpu, start, count).unwrap_or_default().0,
        false => Vec::new(),
    };
    let mut record = head(Kind::OtherModule, module, &name, &regions, values.len());
    record.extend(values);
    let mut control = tracer.control(vcpu);
    if let Some(gate) = &tracer.gate {
        let text = regions.iter().filter(|region| region.2 & RegionFlags::TEXT != 0);
        for &(from, size, _) in text {
            if gate.libraries.add(from, from.saturating_add(size), module).is_err() {
                tracer.give_up("the guest has loaded more modules than the gate can watch");
            }
        }
    }
    if control.others.len() < MAX_OTHERS && !control.others.contains(&module) {
        control.others.push(module);
        control.tell(&record);
    }
}

fn load(tracer: &Tracer, vcpu: &mut Vcpu, module: u64, name: [u8; NAME]) -> Result<(), String> {
    let shown = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
    let unreadable = |what: &str| format!("cannot read the {what} of the module {shown} in the guest");
    let regions = regions(tracer, vcpu, module).ok_or_else(|| unreadable("regions"))?;
    let (start, count) = symbol_table(tracer, vcpu, module);
    if count > MAX_SYMBOLS {
        return Err(format!(
            "the module {shown} claims {count} symbols; its layout is not what was expected"
        ));
    }
    let (values, functions) = symbols(vcpu, start, count).ok_or_else(|| unreadable("symbols"))?;
    let globals: Vec<(Global, u64)> = tracer
        .config
        .globals
        .iter()
        .map(|&(what, at)| {
            let at = at.wrapping_add(tracer.slide().unwrap_or(0));
            vcpu.read_word(at, 8).map(|value| (what, value)).ok_or_else(|| unreadable("kernel's variables"))
        })
        .collect::<Result<_, _>>()?;

    find_ram(tracer, vcpu);
    let mut record = head(Kind::ModuleLoad, module, &name, &regions, values.len());
    tracer.holds.place(shown.as_bytes(), &values);
    record.extend(values);

    tracer.sites.write().unwrap_or_else(PoisonError::into_inner).functions.extend(functions);
    let mut control = tracer.control(vcpu);
    if !control.globals_told {
        control.globals_told = true;
        for &(what, value) in &globals {
            control.tell(&global(what, value));
            match what {
                Global::PageOffsetBase => tracer.direct_map.store(value, Relaxed),
                Global::VmallocBase => tracer.devices_from.store(value, Relaxed),
                Global::VmemmapBase => tracer.devices_to.store(value, Relaxed),
                Global::Slide | Global::GsBase | Global::FreezableQueue | Global::FreezableEfficientQueue => {
                }
            }
        }
    }
    control.tell(&record);
    let generation = tracer.generation.fetch_add(1, Relaxed) + 1;
    let regions: Vec<_> = regions.iter().map(|r| (r.0, r.0.saturating_add(r.1))).collect();
    for &(from, to) in &regions {
        tracer.watched.add(from, to, generation).map_err(|_| "too many modules are watched at a time")?;
    }
    control.modules.push(LoadedModule { address: module, generation, regions });
    tracer.active.store(true, Relaxed);
    Ok(())
}

/// Finds out where QEMU keeps the guest's RAM, by places in the kernel's text, which stays as it is.
fn find_ram(tracer: &Tracer, vcpu: &mut Vcpu) {
    let (from, to) = tracer.config.kernel_text;
    let Some(slide) = tracer.slide().filter(|_| !tracer.ram.known()) else { return };
    let step = (to.saturating_sub(from) / RAM_SAMPLES as u64).max(RAM_SAMPLE as u64) & !63;
    let sample = |at: u64| {
        let physical = vcpu.translate(at.wrapping_add(slide))?;
        let bytes = vcpu.read_physical(physical, RAM_SAMPLE)?.to_vec();
        Some(Sample { physical, bytes })
    };
    let places = (0..RAM_SAMPLES as u64).map(|i| (from & !63).wrapping_add(step.wrapping_mul(i)));
    let samples: Vec<Sample> = places.filter_map(sample).collect();
    tracer.ram.find(&samples);
}

/// The values of all symbols, and those of functions.
fn symbols(vcpu: &mut Vcpu, start: u64, count: u64) -> Option<(Vec<u64>, Vec<u64>)> {
    if count == 0 {
        return Some((Vec::new(), Vec::new()));
    }
    let table = vcpu.read(start, count as usize * SYMBOL)?;
    let value = |symbol: &[u8]| word(&symbol[SYMBOL_VALUE..]);
    let is_function = |symbol: &&[u8]| symbol[SYMBOL_INFO] & 0xf == SYMBOL_IS_FUNCTION;
    let values = table.chunks_exact(SYMBOL).map(value).collect();
    Some((values, table.chunks_exact(SYMBOL).filter(is_function).map(value).collect()))
}

/// A range of a module is given back.
pub extern "C" fn on_free(index: c_uint, _: *mut c_void) {
    let Some(tracer) = tracer() else { return };
    if !tracer.active.load(Relaxed) {
        return;
    }
    // SAFETY: this is the vCPU's callback.
    let Some(vcpu) = (unsafe { tracer.running(index) }) else { return };
    let (from, to) = (vcpu.reg(RSI), vcpu.reg(RDX));
    let mut control = tracer.control(vcpu);
    let overlaps = |m: &&LoadedModule| m.regions.iter().any(|&(a, b)| from < b && a < to);
    let Some((address, generation)) =
        control.modules.iter().find(overlaps).map(|m| (m.address, m.generation))
    else {
        return;
    };
    control.tell(&[Head::encode(Kind::ModuleFree, 0, address), from, to]);
    forget(tracer, from, to, generation);
}

/// A module leaves.
pub extern "C" fn on_unload(index: c_uint, _: *mut c_void) {
    let Some(tracer) = tracer() else { return };
    // SAFETY: this is the vCPU's callback.
    let Some(vcpu) = (unsafe { tracer.running(index) }) else { return };
    let module = vcpu.reg(RDI);
    let mut control = tracer.control(vcpu);
    if let Some(at) = control.others.iter().position(|&other| other == module) {
        control.others.swap_remove(at);
        if let Some(gate) = &tracer.gate {
            // Taking whole ranges away needs no room.
            let _ = gate.libraries.remove(0, u64::MAX, module);
        }
        return control.tell(&[Head::encode(Kind::OtherUnload, 0, module)]);
    }
    let Some(at) = control.modules.iter().position(|m| m.address == module) else { return };
    let gone = control.modules.swap_remove(at);
    control.tell(&[Head::encode(Kind::ModuleUnload, 0, module)]);
    for &(from, to) in &gone.regions {
        forget(tracer, from, to, gone.generation);
    }
    if control.modules.is_empty() {
        tracer.active.store(false, Relaxed);
    }
}

fn forget(tracer: &Tracer, from: u64, to: u64, generation: u64) {
    if tracer.watched.remove(from, to, generation).is_err() {
        tracer.give_up("too many modules are watched at a time");
    }
    tracer.holds.forget(from, to);
    let mut sites = tracer.sites.write().unwrap_or_else(PoisonError::into_inner);
    sites.returns.retain(|a| !(from..to).contains(a));
    sites.functions.retain(|a| !(from..to).contains(a));
}
