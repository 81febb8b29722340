//! Logs the loading and unloading of modules.

use crate::state::{LoadedModule, RDI, RDX, RSI, Tracer, Vcpu, entered, global, tracer, word};
use guardrail_plugin::modules::{NAME, find_ram, name, regions, symbol_table, symbols};
use guardrail_trace::config::ModuleHook;
use guardrail_trace::event::{Global, Head, Kind, RegionFlags};
use std::ffi::{c_uint, c_void};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

/// A limit above the number of symbols of any module.
const MAX_SYMBOLS: u64 = 1 << 20;
/// Most unwatched modules logged at a time. `MAX_OTHER_SYMBOLS` is the most symbols of each.
const MAX_OTHERS: usize = 512;
const MAX_OTHER_SYMBOLS: u64 = 1 << 16;

/// Callback when the kernel has laid out and relocated a module.
pub extern "C" fn on_load(index: c_uint, _: *mut c_void) {
    // SAFETY: this is the vCPU's callback.
    let Some((tracer, vcpu)) = (unsafe { entered(Tracer::running, index) }) else { return };
    let module = vcpu.reg(RDI);
    let Some((name, len)) = name(&tracer.config.layout, vcpu, module) else { return };
    if !tracer.config.watch.iter().any(|w| w.as_bytes() == &name[..len]) {
        return other(tracer, vcpu, module, name);
    }
    if let Err(why) = load(tracer, vcpu, module, name) {
        tracer.give_up(&why);
    }
}

/// Makes the head of a module's record.
fn head(kind: Kind, module: u64, name: &[u8], regions: &[(u64, u64, u64)], symbols: usize) -> Vec<u64> {
    let mut record = vec![Head::encode(kind, regions.len() as u8, module), symbols as u64];
    record.extend(name.chunks(8).map(word));
    record.extend(regions.iter().flat_map(|r| [r.0, r.1, r.2]));
    record
}

/// Logs a module that is not watched. Symbols that cannot be read are left out, because the record only
/// gives names to addresses.
fn other(tracer: &Tracer, vcpu: &mut Vcpu, module: u64, name: [u8; NAME]) {
    let Some(regions) = regions(&tracer.config.layout, vcpu, module) else { return };
    let (start, count) = symbol_table(&tracer.config.layout, vcpu, module);
    let values = match count <= MAX_OTHER_SYMBOLS {
        true => symbols(vcpu, start, count).unwrap_or_default().0,
        false => Vec::new(),
    };
    hook(tracer, module, &name, &values);
    tracer.stacks.add_module(module, &regions);
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
        control.log(&record);
    }
}

/// Notes where the hooked functions of a module are, before its code is translated.
fn hook(tracer: &Tracer, module: u64, name: &[u8; NAME], values: &[u64]) {
    let of_module = |known: &&ModuleHook| {
        name.strip_prefix(known.module.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    };
    let found = tracer.config.module_hooks.iter().filter(of_module);
    let at = |known: &ModuleHook| Some((*values.get(known.symbol as usize)?, module, known.hook));
    let found: Vec<_> = found.filter_map(at).collect();
    if !found.is_empty() {
        tracer.module_hooks.write().unwrap_or_else(PoisonError::into_inner).extend(found);
    }
}

fn load(tracer: &Tracer, vcpu: &mut Vcpu, module: u64, name: [u8; NAME]) -> Result<(), String> {
    let shown = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
    let unreadable = |what: &str| format!("cannot read the {what} of the module {shown} in the guest");
    let regions = regions(&tracer.config.layout, vcpu, module).ok_or_else(|| unreadable("regions"))?;
    let (start, count) = symbol_table(&tracer.config.layout, vcpu, module);
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

    if let Some(slide) = tracer.slide() {
        find_ram(&tracer.ram, tracer.config.kernel_text, slide, vcpu);
    }
    let mut record = head(Kind::ModuleLoad, module, &name, &regions, values.len());
    tracer.holds.resolve(shown.as_bytes(), &values);
    record.extend(values);

    tracer.stacks.add_module(module, &regions);
    tracer.sites.write().unwrap_or_else(PoisonError::into_inner).functions.extend(functions);
    let mut control = tracer.control(vcpu);
    if !control.globals_logged {
        control.globals_logged = true;
        for &(what, value) in &globals {
            control.log(&global(what, value));
            match what {
                Global::PageOffsetBase => tracer.direct_map.store(value, Relaxed),
                Global::VmallocBase => tracer.devices_from.store(value, Relaxed),
                Global::VmemmapBase => tracer.devices_to.store(value, Relaxed),
                Global::Slide | Global::GsBase | Global::FreezableQueue | Global::FreezableEfficientQueue => {
                }
            }
        }
    }
    control.log(&record);
    let generation = tracer.generation.fetch_add(1, Relaxed) + 1;
    let regions: Vec<_> = regions.iter().map(|r| (r.0, r.0.saturating_add(r.1))).collect();
    for &(from, to) in &regions {
        tracer.watched.add(from, to, generation).map_err(|_| "too many modules are watched at a time")?;
    }
    control.modules.push(LoadedModule { address: module, generation, regions });
    tracer.active.store(true, Relaxed);
    Ok(())
}

/// Callback when the kernel frees a range of a module.
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
    control.log(&[Head::encode(Kind::ModuleFree, 0, address), from, to]);
    forget(tracer, from, to, generation);
}

/// Callback when the kernel unloads a module.
pub extern "C" fn on_unload(index: c_uint, _: *mut c_void) {
    // SAFETY: this is the vCPU's callback.
    let Some((tracer, vcpu)) = (unsafe { entered(Tracer::running, index) }) else { return };
    let module = vcpu.reg(RDI);
    tracer.stacks.remove_module(module);
    let mut control = tracer.control(vcpu);
    if let Some(at) = control.others.iter().position(|&other| other == module) {
        control.others.swap_remove(at);
        let mut hooks = tracer.module_hooks.write().unwrap_or_else(PoisonError::into_inner);
        hooks.retain(|hook| hook.1 != module);
        drop(hooks);
        if let Some(gate) = &tracer.gate {
            // Removing whole ranges needs no room.
            let _ = gate.libraries.remove(0, u64::MAX, module);
        }
        return control.log(&[Head::encode(Kind::OtherUnload, 0, module)]);
    }
    let Some(at) = control.modules.iter().position(|m| m.address == module) else { return };
    let gone = control.modules.swap_remove(at);
    control.log(&[Head::encode(Kind::ModuleUnload, 0, module)]);
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
