//! A module with stores and calls of each kind that is checked. A forbidden access is reported at its
//! instruction, and the correct twin causes no report.

use crate::{Lab, ensure};
use guardrail_rewrite::border::runtime::Exports;
use guardrail_rewrite::passes::checks::Checks;
use guardrail_rewrite::{Object, rewrite};
use guardrail_vm::{Cache, kbuild, kernels, packages::Packages, runtime};
use libtest_mimic::Failed;
use std::path::Path;

/// Functions of `stores.c`, the text of the report, and the first bytes of the instruction that it names.
const KINDS: [(&str, &str, &[u8]); 15] = [
    ("do_byte", "write of 1 bytes", &[0xc6, 0x47, 0x03, 0x11]),
    ("do_word", "write of 2 bytes", &[0x66, 0xc7, 0x47, 0x06, 0x22, 0x11]),
    ("do_quad", "write of 8 bytes", &[0x48, 0xc7, 0x47, 0x08, 0x44, 0x33, 0x22, 0x11]),
    ("do_crossing", "write of 4 bytes", &[0xc7, 0x47, 0x7e, 0x88, 0x77, 0x66, 0x55]),
    ("do_group", "write of 8 bytes", &[0x48, 0xc7, 0x47, 0x70, 0x01]),
    ("do_group", "write of 4 bytes", &[0xc7, 0x47, 0x78, 0x02]),
    ("do_group", "write of 4 bytes", &[0xc7, 0x87, 0x84, 0x00, 0x00, 0x00, 0x78, 0x56, 0x34, 0x12]),
    ("do_clear", "write of 16 bytes", &[0xf3, 0xaa]),
    ("do_copy", "write of 32 bytes", &[0xf3, 0x48, 0xa5]),
    ("do_bit", "write of 1 bytes", &[0xf0, 0x48, 0x0f, 0xab, 0x37]),
    ("do_bit_below", "write of 1 bytes", &[0x0f, 0xab, 0x77, 0x08]),
    ("do_exchange", "write of 4 bytes", &[0xf0, 0x0f, 0xb1, 0x77, 0x04]),
    ("do_pair", "write of 16 bytes", &[0xf0, 0x48, 0x0f, 0xc7, 0x4f, 0x10]),
    ("do_flags", "write of 8 bytes", &[0x48, 0xc7, 0x47, 0x18, 0x55, 0x44, 0x33, 0x22]),
    ("do_percpu", "write of 8 bytes", &[0x65, 0x48, 0xff, 0x07]),
];
/// The indirect call; its code differs between kernels.
const CALL: (&str, &str) = ("do_call", "call of");

/// Prints the kernel's log and the runtime's state.
const LOG: &str =
    "mount -t debugfs d /sys/kernel/debug; dmesg | grep guardrail:; cat /sys/kernel/debug/guardrail/domains";

/// Both twins in guests with a kernel.
pub fn checked(kernel: &str) -> Result<(), Failed> {
    let packages = Packages::new(&Cache::open()?);
    let found = kernels::find(&packages, kernel)?;
    let runtime = runtime::ensure(&packages, &found)?;
    let exports = Exports::read("guardrail.ko", std::fs::read(&runtime.module)?)?;
    let folder = tempfile::tempdir()?;
    let sources = folder.path().join("stores");
    std::fs::create_dir(&sources)?;
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/stores"))? {
        let entry = entry?;
        std::fs::copy(entry.path(), sources.join(entry.file_name()))?;
    }
    let script = kbuild::folder("scripts", "kbuild", "GUARDRAIL_SCRIPTS")?.join("kbuild");
    let work = folder.path().join("work");
    let rest = [work.as_os_str(), sources.as_os_str()];
    kbuild::run(&packages, &found, &script, &["--name", "stores"], &rest)?;
    std::fs::copy(&runtime.module, folder.path().join("guardrail.ko"))?;
    let guard = |name: &str| -> Result<(Object, String), Failed> {
        let mut checks = Checks::new(1).guarded(name, &exports);
        let file = std::fs::read(sources.join(format!("{name}.ko")))?;
        let rewritten = rewrite(name, file, &mut [&mut checks])?;
        let path = folder.path().join(format!("{name}.ko"));
        std::fs::write(&path, &rewritten.file)?;
        Ok((Object::read(name, &rewritten.file)?, path.display().to_string()))
    };
    let (_, path) = guard("stores_ok")?;
    let printed = Lab::with_driver("stores", kernel, &path, &[])?.prints(LOG);
    if !printed.contains("domain 1 (stores_ok)") || printed.contains("violation:") {
        return Err(format!("the good twin is not silent, or not there:\n{printed}").into());
    }
    let (object, path) = guard("stores")?;
    each_reported(&object, &Lab::with_driver("stores", kernel, &path, &[])?.prints(LOG))
}

/// Each kind is reported once, at its instruction, and nothing else is reported.
fn each_reported(object: &Object, printed: &str) -> Result<(), Failed> {
    let lines: Vec<&str> = printed.lines().filter(|line| line.contains("violation:")).collect();
    let is = |line: &str, function: &str, what: &str| {
        line.contains(what) && line.contains(&format!("by {function}+"))
    };
    for (function, what, bytes) in KINDS {
        let at = lines.iter().filter(|line| is(line, function, what)).filter(|line| {
            let place = line.split_once(&format!("by {function}+0x")).map(|(_, rest)| rest);
            let offset = place.and_then(|place| u64::from_str_radix(place.split('/').next()?, 16).ok());
            offset
                .and_then(|offset| code(object, function, offset))
                .is_some_and(|code| code.starts_with(bytes))
        });
        if at.count() != 1 {
            return Err(
                format!("{what} by {function} is not reported once at its instruction:\n{printed}").into()
            );
        }
    }
    ensure(lines.iter().any(|line| is(line, CALL.0, CALL.1)) && lines.len() == KINDS.len() + 1, || {
        format!("the call is not reported, or something else is:\n{printed}")
    })
}

/// The module's code from an offset in a function on.
fn code<'a>(object: &'a Object, function: &str, offset: u64) -> Option<&'a [u8]> {
    let symbol = object.symbols.iter().find(|symbol| symbol.name == function)?;
    object.sections[symbol.section()?].bytes().get((symbol.value + offset) as usize..)
}
