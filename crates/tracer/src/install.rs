//! The interface to QEMU: the two symbols that QEMU looks up in a plugin.

use crate::callbacks::accesses;
use crate::callbacks::hooks::MAX_DEREFS;
use crate::callbacks::lists::MAX_ENTRY;
use crate::state;
use crate::trans;
use guardrail_plugin::ffi::{self, Info, PluginId};
use guardrail_plugin::install::configured;
use guardrail_trace::config::{ListCount, ListWalk, TracerConfig};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

/// The version of the plugin API that this plugin is built for. QEMU reads it.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = ffi::API_VERSION;

/// Installs the plugin. QEMU calls this once, before the guest runs; a result other than 0 ends QEMU.
///
/// # Safety
/// Only QEMU may call this: `info` points to its description of itself, `argv` to `argc` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU passes valid arguments.
    let configured = unsafe { configured(info, argc, argv) };
    // SAFETY: QEMU's description lives during this call.
    let vcpus = unsafe { (*info).smp_vcpus };
    let installed = configured.and_then(|(config, path, slide)| {
        check(&config, &path)?;
        state::install(config, vcpus.max(1) as u32)?;
        slide.zip(state::tracer()).map(|(slide, tracer)| tracer.set_slide(slide));
        Ok(())
    });
    match installed {
        Ok(()) => {
            register(id);
            0
        }
        Err(why) => {
            eprintln!("guardrail tracer: {why}");
            1
        }
    }
}

/// Checks that the tracer can carry out the configuration.
fn check(config: &TracerConfig, path: &str) -> Result<(), String> {
    for hook in &config.hooks {
        if hook.args > 6
            || hook.derefs.len() > MAX_DEREFS
            || hook.derefs.iter().any(|d| d.arg > 5 || !matches!(d.size, 1 | 2 | 4 | 8))
            || hook.lists.len() > 16
            || hook.lists.iter().any(|list| !fits(list))
        {
            return Err(format!(
                "its configuration {path} is malformed: the hook {} asks for arguments that do not exist",
                hook.name
            ));
        }
    }
    if !config.probe.align.is_power_of_two() || config.probe.bytes.is_empty() {
        return Err(format!("its configuration {path} is malformed: the probe has no bytes or no alignment"));
    }
    Ok(())
}

/// Whether the list's arguments exist, and its entries are small enough to read.
fn fits(list: &ListWalk) -> bool {
    let count = !matches!(list.count, ListCount::Arg(arg) if arg > 5);
    let field = |&(offset, size): &(u64, u8)| matches!(size, 1 | 2 | 4 | 8) && offset <= MAX_ENTRY - 8;
    list.arg <= 5
        && count
        && list.fields.len() <= 16
        && list.fields.iter().all(field)
        && list.chain.is_none_or(|offset| offset <= MAX_ENTRY - 8)
}

fn register(id: PluginId) {
    // SAFETY: the signatures are those of version 7, which QEMU has checked.
    unsafe {
        ffi::qemu_plugin_register_vcpu_init_cb(id, on_vcpu_init, null_mut());
        ffi::qemu_plugin_register_vcpu_exit_cb(id, accesses::on_pause, null_mut());
        ffi::qemu_plugin_register_vcpu_idle_cb(id, accesses::on_pause, null_mut());
        ffi::qemu_plugin_register_vcpu_tb_trans_cb(id, trans::on_translation, null_mut());
        let kinds = ffi::DISCON_INTERRUPT | ffi::DISCON_EXCEPTION;
        ffi::qemu_plugin_register_vcpu_discon_cb(id, kinds, accesses::on_discontinuity, null_mut());
        ffi::qemu_plugin_register_atexit_cb(id, on_exit, null_mut());
    }
}

extern "C" fn on_vcpu_init(index: c_uint, _: *mut c_void) {
    if let Some(tracer) = state::tracer() {
        tracer.attach(index);
    }
}

extern "C" fn on_exit(_: *mut c_void) {
    if let Some(tracer) = state::tracer() {
        tracer.finish();
    }
}
