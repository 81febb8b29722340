//! Starts gdb on the guest as it was at a finding (`guardrail debug`).

use crate::input::{AnalysisInput, ModuleFile};
use crate::snapshots::{self, Files};
use crate::stored;
use guardrail_binfmt::orc::Frames;
use guardrail_binfmt::{KernelImage, ModuleImage};
use guardrail_finding::{Finding, trace_lines};
use guardrail_host::HostError;
use guardrail_host::error::print_line;
use guardrail_host::folders::absolute;
use guardrail_jail::Jail;
use guardrail_report::Report;
use guardrail_snapshot::script::{self, Kernel, Module};
use guardrail_snapshot::{Dump, Guest, Loaded, map, module_symbols, placed, symbols};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The number of stack frames that are shown at first, inlined ones and those of an interrupt among them.
const FRAMES: u32 = 64;

/// A debugger that can be started.
pub struct Debugger {
    /// A description of the finding in some lines of text.
    pub head: String,
    /// gdb with its arguments.
    pub command: Command,
}

/// Prepares the snapshot of a finding for gdb. For good, this process and what it starts then write only the folder and
/// the terminal, have no capabilities, and reach no network.
///
/// `folder` is the run's; `finding` is the first characters of an
/// id. With `batch`, gdb shows where the guest was stopped and ends.
pub fn debugger(
    folder: &Path,
    finding: &str,
    batch: bool,
    arguments: &[OsString],
) -> Result<Debugger, HostError> {
    let out = absolute(folder)?;
    let written = ["/dev/null", "/dev/tty"].iter().fold(Jail::new().reads("/").writes(&out), Jail::writes);
    guardrail_jail::enter(&written)
        .map_err(|error| HostError::Run(format!("gdb cannot be confined: {error}")))?;
    let (_, report) = stored::load(folder)?;
    let finding = choose(&report, &out, finding)?;
    let gdb = gdb()?;
    let files = Files::of(&out, &finding.id);
    let input = snapshots::input(&out)?;
    let address = prepare(&out, &files, &input, finding)?;
    let mut command = command(&gdb, &files, batch, finding, address);
    command.args(arguments);
    Ok(Debugger { head: head(finding), command })
}

/// The finding that the user means, among those that have a snapshot.
fn choose<'a>(report: &'a Report, out: &Path, name: &str) -> Result<&'a Finding, HostError> {
    let saved = snapshots::saved_in(out);
    let usage = |why: String| Err(HostError::Usage(why));
    if saved.is_empty() {
        return usage(format!(
            "{} has no snapshot of the guest; make some with 'guardrail check --snapshot-on-finding --out DIR'",
            out.display()
        ));
    }
    let matching: Vec<&Finding> =
        report.findings.iter().filter(|finding| finding.id.starts_with(name)).collect();
    match matching[..] {
        [one] if saved.contains(&one.id) => Ok(one),
        [_] => usage(format!(
            "the guest was not saved at finding {name}, which may have come too late for it; it was at {}",
            saved.join(", ")
        )),
        [] => usage(format!(
            "no finding of the run is called '{name}'; the guest was saved at {}",
            saved.join(", ")
        )),
        _ => usage(format!(
            "{} findings of the run begin with '{name}'; give more of the one you mean",
            matching.len()
        )),
    }
}

/// The path of gdb.
fn gdb() -> Result<PathBuf, HostError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join("gdb")).find(|file| file.is_file()).ok_or_else(
        || HostError::Usage("there is no gdb in $PATH; install it (on Debian: apt-get install gdb)".into()),
    )
}

/// Prepares the snapshot for gdb: its addresses, the kernel's symbols, the modules. Returns the address of
/// the finding.
fn prepare(
    out: &Path,
    files: &Files,
    input: &AnalysisInput,
    finding: &Finding,
) -> Result<Option<u64>, HostError> {
    let image = KernelImage::open(&input.kernel)?;
    let dump = Dump::open(&files.core)?;
    let guest = Guest::find(&dump, &image)?;
    let loaded = guest.modules(&image);
    let loaded = |name: &str| loaded.iter().find(|module| module.name == name);

    let (mut sections, mut names) = guest.kernel(&image);
    let mut frames = Frames::new();
    guest.kernel_frames(&image, &mut frames);
    // Without such a module, some addresses have no names.
    for other in &input.others {
        if let (Some(loaded), Ok(file)) = (loaded(&other.name), ModuleImage::open(&other.path)) {
            let (more_sections, more_names) = module_symbols(loaded, &file);
            guest.module_frames(loaded, &file, &mut frames);
            sections.extend(more_sections);
            names.extend(more_names);
        }
    }
    let mut modules = Vec::new();
    let mut finding_at = None;
    for module in &input.modules {
        let Some(loaded) = loaded(&module.name) else {
            print_line("guardrail", &format!("{} is not loaded in the snapshot", module.name));
            continue;
        };
        let path = beside(out, module);
        let file = ModuleImage::open(&path)?;
        guest.module_frames(loaded, &file, &mut frames);
        if module.name == finding.module {
            finding_at = address(loaded, &file, finding);
        }
        let file_with_lines = module.debug.clone().filter(|debug| debug.is_file()).unwrap_or(path);
        modules.push(Module { file: file_with_lines, sections: placed(loaded, &file) });
    }
    let written = symbols::write(&sections, &names, &frames.finish());
    fs::write(&files.symbols, written).map_err(HostError::io("write", files.symbols.display()))?;
    let lines = input.kernel_debug.clone().filter(|debug| debug.is_file());
    let lines = lines.map(|file| Kernel { file, slide: guest.slide() });
    let commands = script::commands(lines.as_ref(), &modules).ok_or_else(|| {
        HostError::Usage(format!("gdb cannot open a folder with such a name: {}", out.display()))
    })?;
    fs::write(&files.script, commands).map_err(HostError::io("write", files.script.display()))?;
    map(&dump, guest.space())?;
    Ok(finding_at)
}

/// The module's file in the folder of the run, which may have been moved.
fn beside(out: &Path, module: &ModuleFile) -> PathBuf {
    let file = out.join(format!("{}.ko", module.name));
    if file.is_file() { file } else { module.path.clone() }
}

/// The address of the finding's instruction in the guest.
fn address(loaded: &Loaded, file: &ModuleImage, finding: &Finding) -> Option<u64> {
    let (_, symbols) = module_symbols(loaded, file);
    let function = symbols.iter().find(|symbol| symbol.code && symbol.name == finding.function)?;
    function.address.checked_add(finding.offset)
}

/// The command line of gdb.
fn command(gdb: &Path, files: &Files, batch: bool, finding: &Finding, address: Option<u64>) -> Command {
    let mut command = Command::new(gdb);
    command.arg("-q");
    // Files that belong to a driver must not make gdb do anything, and nothing is fetched.
    for setting in ["auto-load no", "debuginfod enabled off", "confirm off", "pagination off"] {
        command.arg("-iex").arg(format!("set {setting}"));
    }
    if batch {
        command.arg("-batch");
    }
    command.arg("-s").arg(&files.symbols).arg("-c").arg(&files.core).arg("-x").arg(&files.script);
    let mut say = |text: String| {
        command.arg("-ex").arg(text);
    };
    say(format!("thread {}", finding.context.cpu + 1));
    say(format!("backtrace {FRAMES}"));
    if let Some(address) = address {
        say(format!("echo \\nThe finding is at {address:#x}:\\n"));
        say(format!("info line *{address:#x}"));
        say(format!("x/i {address:#x}"));
        // Where the function is still on the stack, its stack frame is the interesting one.
        say(format!("frame function *{address:#x}"));
    }
    if !batch {
        say("set pagination on".into());
        say("set confirm on".into());
    }
    command
}

/// A description of the finding in some lines, without control characters.
fn head(finding: &Finding) -> String {
    let mut text = format!("{} {} ({}): {}\n", finding.id, finding.kind, finding.checker, finding.message);
    for line in trace_lines(&finding.stack) {
        text.push_str(&format!("  {line}\n"));
    }
    text.push_str(&format!("  by {} on CPU {}\n\n", finding.context.thread, finding.context.cpu));
    text.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect()
}
