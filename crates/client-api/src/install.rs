//! The interface to QEMU: reads the configuration, makes the clients, and instruments translated code
//! while attached.

use crate::Discontinuity;
use crate::client::{self, Kind, Setup};
use crate::control;
use crate::host::{self, Counters, Hooks, Host, Shared, Wanted, Wants, host, modules, scope};
use guardrail_plugin::block::View;
use guardrail_plugin::ffi::{self, CB_R_REGS, Info, PluginId, Tb};
use guardrail_plugin::install::configured;
use guardrail_plugin::probe;
use guardrail_plugin::registers::{RAX, RDI, RSI, RSP};
use guardrail_trace::client::ClientConfig;
use guardrail_trace::config::Hook;
use iced_x86::{Decoder, DecoderOptions};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Body of `qemu_plugin_install`. A result other than 0 ends QEMU.
///
/// # Safety
/// `info` points to QEMU's description of itself, `argv` to `argc` strings.
pub unsafe fn install(
    id: PluginId,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
    kinds: &[Kind],
) -> c_int {
    // SAFETY: QEMU passes valid arguments.
    let configured = unsafe { configured(info, argc, argv) };
    // SAFETY: QEMU's description lives during this call.
    let vcpus = unsafe { (*info).max_vcpus.max((*info).smp_vcpus) };
    match configured.and_then(|(config, ..)| prepare(id, config, vcpus.max(1) as u32, kinds)) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("guardrail client: {why}");
            1
        }
    }
}

fn prepare(id: PluginId, config: ClientConfig, vcpus: u32, kinds: &[Kind]) -> Result<(), String> {
    let host = make(id, config, kinds, vcpus)?;
    control::serve(host)?;
    host.control.wanted.store(host.config.attached, Release);
    // Until the kernel's address is known, all code is examined anyway.
    host.control.attached.store(host.config.attached, Release);
    host.control.times.store(u64::from(host.config.attached), Relaxed);
    register(host);
    Ok(())
}

fn make(id: PluginId, config: ClientConfig, kinds: &[Kind], vcpus: u32) -> Result<&'static Host, String> {
    let counters = Counters::new(vcpus);
    let mut hooks = Vec::new();
    let mut clients = Vec::new();
    let mut image = None;
    for choice in &config.clients {
        // The only kind needs no name.
        let only = choice.name == "*" && kinds.len() == 1;
        let kind = kinds.iter().find(|kind| only || kind.name == choice.name).ok_or_else(|| {
            let known: Vec<_> = kinds.iter().map(|kind| kind.name).collect();
            format!("it has no client {}; it has {}", choice.name, known.join(", "))
        })?;
        let mut setup = Setup {
            config: &config,
            counters: &counters,
            hooks: &mut hooks,
            image: &mut image,
            client: clients.len(),
            next_hook: 0,
            options: &choice.options,
            vcpus,
            wants: Wants::default(),
        };
        let client = (kind.make)(&mut setup).map_err(|why| format!("client {}: {why}", kind.name))?;
        clients.push((client, setup.wants));
    }
    let own = |address| Hook {
        name: String::new(),
        address,
        args: 2,
        derefs: Vec::new(),
        result: false,
        returns: Vec::new(),
        lists: Vec::new(),
    };
    hooks.push((own(config.kernel.modules.load), Wanted::ModuleLoad));
    hooks.push((own(config.kernel.modules.unload), Wanted::ModuleUnload));
    if clients.iter().any(|(_, wants)| wants.threads) {
        let switch = config.modules.switch.ok_or("this kernel has no function __switch_to")?;
        hooks.push((own(switch), Wanted::Switch));
    }
    let hooks = Hooks::new(hooks, &config.kernel.return_thunks);
    host::set(id, config, clients, counters, hooks)
}

/// Registers the callbacks that the requested state needs.
fn register(host: &Host) {
    let attached = host.control.wanted.load(Acquire);
    // SAFETY: the signatures are those of version 7, which QEMU has checked.
    unsafe {
        ffi::qemu_plugin_register_vcpu_init_cb(host.id, on_vcpu_init, null_mut());
        ffi::qemu_plugin_register_vcpu_idle_cb(host.id, on_pause, null_mut());
        ffi::qemu_plugin_register_vcpu_resume_cb(host.id, on_pause, null_mut());
        if attached || host.slide().is_none() {
            ffi::qemu_plugin_register_vcpu_tb_trans_cb(host.id, on_translation, null_mut());
        }
        let kinds = ffi::DISCON_INTERRUPT | ffi::DISCON_EXCEPTION;
        ffi::qemu_plugin_register_vcpu_discon_cb(host.id, kinds, on_discontinuity, null_mut());
        ffi::qemu_plugin_register_atexit_cb(host.id, on_exit, null_mut());
    }
}

extern "C" fn on_vcpu_init(index: c_uint, _: *mut c_void) {
    let Some(host) = host() else { return };
    // SAFETY: the callback of this vCPU.
    let Some(vcpu) = (unsafe { host.vcpu(index) }) else { return };
    if let Err(name) = vcpu.cpu().regs.find() {
        eprintln!(
            "guardrail client: QEMU does not offer the register {name}; use qemu-system-x86_64 11 or newer"
        );
    }
}

extern "C" fn on_pause(index: c_uint, _: *mut c_void) {
    if let Some(host) = host() {
        change(host, index);
    }
}

extern "C" fn on_discontinuity(index: c_uint, kind: c_int, from: u64, to: u64, _: *mut c_void) {
    let Some(host) = host() else { return };
    change(host, index);
    if !host.control.attached.load(Relaxed) || !host.clients.iter().any(|(_, wants)| wants.discontinuities) {
        return;
    }
    // SAFETY: the callback of this vCPU.
    let Some(vcpu) = (unsafe { host.vcpu(index) }) else { return };
    // QEMU reports an exception twice: when it is raised, before the handler is known, and when the
    // handler is about to run. The second report looks like an interrupt. Clients get the second one,
    // which has the very instruction.
    let raised = std::mem::take(&mut vcpu.raised);
    if kind == ffi::DISCON_EXCEPTION {
        vcpu.raised = true;
        return;
    }
    let kind = if raised { Discontinuity::Exception } else { Discontinuity::Interrupt };
    for (client, wants) in &host.clients {
        if wants.discontinuities {
            client.discontinuity(vcpu, kind, from, to);
        }
    }
}

/// Asks QEMU for a reset where the state differs from the requested one.
#[inline]
fn change(host: &Host, index: u32) {
    let control = &host.control;
    if control.wanted.load(Relaxed) != control.attached.load(Relaxed) || control.stale.load(Relaxed) {
        renew(host, index);
    }
}

#[cold]
fn renew(host: &Host, index: u32) {
    // Before the kernel runs there is nothing to attach to, and its address must be found first.
    if host.slide().is_none() || host.control.changing.swap(true, AcqRel) {
        return;
    }
    host.control.by.store(index, Relaxed);
    // SAFETY: called on a vCPU's thread; QEMU flushes what it has translated and calls back while no vCPU runs.
    unsafe { ffi::qemu_plugin_reset(host.id, on_reset, null_mut()) };
}

/// QEMU calls this after a reset: all callbacks are removed, and no vCPU runs.
extern "C" fn on_reset(_: *mut c_void) {
    let Some(host) = host() else { return };
    let control = &host.control;
    let (before, wanted) = (control.attached.load(Acquire), control.wanted.load(Acquire));
    control.stale.store(false, Release);
    register(host);
    // SAFETY: the thread of this vCPU runs this, and no other vCPU runs.
    if let Some(vcpu) = unsafe { host.vcpu(control.by.load(Relaxed)) }
        && before != wanted
    {
        if wanted {
            host.learn_memory(vcpu);
            modules::walk(host, vcpu);
            for (client, _) in &host.clients {
                client.attached(vcpu, true);
            }
            control.times.fetch_add(1, Relaxed);
        } else {
            for (client, _) in &host.clients {
                client.detached();
            }
            client::forget(None);
            host.modules.forget();
            host.hooks.open.clear();
        }
    }
    control.attached.store(wanted, Release);
    control.changing.store(false, Release);
}

/// QEMU's callback for a translated block. Only here can it be instrumented.
extern "C" fn on_translation(tb: *mut Tb, _: *mut c_void) {
    let Some(host) = host() else { return };
    // SAFETY: the block of this callback.
    let view = unsafe { View::new(tb) };
    let start = view.address();
    if host.slide().is_none() {
        find_slide(host, &view, start);
    }
    if !host.control.attached.load(Relaxed) {
        return;
    }
    if let Some(slide) = host.slide() {
        hook(host, &view, start, slide);
    }
    let within = scope::holds(&host.config.scope, &host.modules, host.slide(), start);
    if within || host.clients.iter().any(|(_, wants)| wants.everything) {
        let shared = Shared::new(view, within);
        for (client, wants) in &host.clients {
            if within || wants.everything {
                client.block(&shared, host);
            }
        }
    }
}

fn find_slide(host: &Host, view: &View, start: u64) {
    let Some(slide) = probe::slide(&host.config.kernel.probe, start, |len| view.bytes(len)) else { return };
    host.set_slide(slide);
    if !host.config.attached {
        // This callback is registered only for the slide. The next discontinuity removes it.
        host.control.stale.store(true, Release);
        return;
    }
    // SAFETY: only the boot CPU runs, and this is its thread.
    if let Some(vcpu) = unsafe { host.vcpu(0) } {
        for (client, _) in &host.clients {
            client.attached(vcpu, false);
        }
    }
}

/// Instruments entries and returns of hooked functions.
fn hook(host: &Host, view: &View, start: u64, slide: u64) {
    let (from, to) = host.config.kernel.kernel_text;
    let link = start.wrapping_sub(slide);
    if !(from..to).contains(&link) {
        return;
    }
    let last = view.insn(view.len() - 1);
    let end = last.address();
    for &(at, number) in host.hooks.entries.within(link, end.wrapping_sub(slide)) {
        let address = at.wrapping_add(slide);
        if let Some(insn) = (0..view.len()).map(|i| view.insn(i)).find(|insn| insn.address() == address) {
            insn.call(on_entry, CB_R_REGS, number as usize);
        }
    }
    if let Some(hooks) = host.hooks.returns(end.wrapping_sub(slide)) {
        let insn = Decoder::with_ip(64, &last.bytes(), end, DecoderOptions::NONE).decode();
        if host.hooks.is_return(&insn, slide) {
            last.call(on_return, CB_R_REGS, std::ptr::from_ref(hooks) as usize);
        }
    }
}

guardrail_plugin::with_env! {
    /// A hooked function begins.
    on_entry => entry
}

extern "C" fn entry(index: c_uint, number: *mut c_void, env: *mut u64) {
    let Some(host) = host() else { return };
    // SAFETY: the callback of this vCPU.
    let Some(vcpu) = (unsafe { host.vcpu(index) }) else { return };
    vcpu.cpu().regs.learn(env);
    let number = number as usize as u32;
    let Some((hook, wanted)) = host.hooks.wanted(number) else { return };
    match *wanted {
        Wanted::Client(client, id) => {
            if hook.result {
                let (rsp, args) = (vcpu.register(RSP), vcpu.args());
                host.hooks.open.enter(number, rsp, Some(args));
            }
            if let Some((client, _)) = host.clients.get(client) {
                client.entered(vcpu, id);
            }
        }
        Wanted::ModuleLoad => {
            host.learn_memory(vcpu);
            let module = vcpu.register(RDI);
            modules::load(host, vcpu, module);
        }
        Wanted::ModuleUnload => {
            let module = vcpu.register(RDI);
            client::forget(Some(module));
            modules::unload(host, module);
        }
        Wanted::Switch => {
            let (from, to) = (vcpu.register(RDI), vcpu.register(RSI));
            for (client, wants) in &host.clients {
                if wants.threads {
                    client.switched(vcpu, from, to);
                }
            }
        }
    }
}

guardrail_plugin::with_env! {
    /// A function that may be hooked returns.
    on_return => function_return
}

extern "C" fn function_return(index: c_uint, hooks: *mut c_void, env: *mut u64) {
    let Some(host) = host() else { return };
    // SAFETY: the callback of this vCPU.
    let Some(vcpu) = (unsafe { host.vcpu(index) }) else { return };
    vcpu.cpu().regs.learn(env);
    // SAFETY: translation passed a list that is never freed.
    let hooks = unsafe { &*hooks.cast::<Vec<u32>>() };
    let rsp = vcpu.register(RSP);
    let Some(left) = host.hooks.open.leave(hooks, rsp) else { return };
    let result = vcpu.register(RAX);
    for (number, args) in std::iter::once(left.first).chain(left.more) {
        if let Some(&(_, Wanted::Client(client, id))) = host.hooks.wanted(number)
            && let Some((client, _)) = host.clients.get(client)
        {
            client.left(vcpu, id, args.unwrap_or_default(), result);
        }
    }
}

extern "C" fn on_exit(_: *mut c_void) {
    let Some(host) = host() else { return };
    control::write_results(host);
    for (client, _) in &host.clients {
        client.end();
    }
}
