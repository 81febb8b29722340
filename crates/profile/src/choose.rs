//! Turns the command line into the plugins' configuration: which clients, on which code, and when.

use crate::plan::ProfilePlan;
use guardrail_binfmt::KernelImage;
use guardrail_host::folders::absolute;
use guardrail_host::{HostError, drivers, folders};
use guardrail_jail::Jail;
use guardrail_kernel::{SummaryTable, module_list, tracer_config};
use guardrail_trace::client::{ClientChoice, ClientConfig, Request, Scope};
use guardrail_vm::prepare::Prepared;
use guardrail_vm::run::{Plugin, named};
use std::fs;
use std::path::{Path, PathBuf};

/// The library with the included clients; it lies beside the program.
const CLIENTS: &str = "libguardrail_client_tools.so";

/// The included clients, and what each reports.
pub const INCLUDED: &[(&str, &str)] = &[
    (
        "blocks",
        "which blocks and functions run most, and on which stacks; every=N instructions between two stacks",
    ),
    ("calls", "how often functions are called, by whom, and how many instructions a call takes"),
    ("code", "whether the code that runs is the code that was instrumented, however it changes"),
    ("count", "instructions by CPU and context, exact; all=yes counts user code and firmware as well"),
    ("coverage", "which code ran, and what of modules with debug information never did"),
    ("irq", "interrupts and exceptions, lengths of their handlers, and how long interrupts are off"),
    ("kaddrcheck", "accesses to memory that belongs to nobody: freed, or beyond the size asked for"),
    ("memtrace", "addresses of all memory accesses, into a file; file=PATH limit=N stores=yes"),
    ("mix", "instructions by kind"),
    ("null", "nothing: what instrumentation itself costs"),
    (
        "stackcheck",
        "overflows of kernel stacks before they happen, and how deep each thread was; mode=stringent ends the thread",
    ),
];

/// A plugin and the clients that run in it.
#[derive(Debug, PartialEq, Eq)]
pub struct Selection {
    /// The library of the plugin; `None` for the included clients.
    library: Option<PathBuf>,
    clients: Vec<ClientChoice>,
}

/// The plugins that `--client` names: `NAME[:KEY=VALUE…]` or `FILE.so[:KEY=VALUE…]`, separated by commas.
pub fn clients(given: &[String]) -> Result<Vec<Selection>, HostError> {
    let mut chosen: Vec<Selection> = Vec::new();
    for text in given.iter().flat_map(|list| list.split(',')).filter(|text| !text.is_empty()) {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let mut choice = ClientChoice { name: name.to_owned(), ..ClientChoice::default() };
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| {
                HostError::Usage(format!("--client {text}: an option is KEY=VALUE, not '{part}'"))
            })?;
            choice.options.insert(key.to_owned(), value.to_owned());
        }
        if name.ends_with(".so") || name.contains('/') {
            let path = absolute(Path::new(name))?;
            if !path.is_file() {
                return Err(HostError::Usage(format!(
                    "there is no client at {}; build it first",
                    path.display()
                )));
            }
            // A user's plugin has one client, whatever its name.
            choice.name = "*".to_owned();
            chosen.push(Selection { library: Some(path), clients: vec![choice] });
            continue;
        }
        if !INCLUDED.iter().any(|(known, _)| *known == name) {
            let names: Vec<&str> = INCLUDED.iter().map(|(name, _)| *name).collect();
            return Err(HostError::Usage(format!(
                "there is no client {name}; there are {}, and files named NAME.so",
                names.join(", ")
            )));
        }
        match chosen.iter_mut().find(|plugin| plugin.library.is_none()) {
            Some(plugin) if plugin.clients.iter().any(|known| known.name == name) => {
                return Err(HostError::Usage(format!("the client {name} is named twice")));
            }
            Some(plugin) => plugin.clients.push(choice),
            None => chosen.push(Selection { library: None, clients: vec![choice] }),
        }
    }
    match chosen.is_empty() {
        true => Err(HostError::Usage("no client is named; see 'guardrail list clients'".into())),
        false => Ok(chosen),
    }
}

/// Words for the kernel's command line that the clients need: after a client ends a thread, the system must
/// continue.
pub fn kernel_arguments(chosen: &[Selection]) -> Vec<String> {
    let ends = |choice: &ClientChoice| choice.options.get("mode").is_some_and(|mode| mode == "stringent");
    match chosen.iter().flat_map(|plugin| &plugin.clients).any(ends) {
        true => vec!["sysctl.kernel.panic_on_oops=0".to_owned()],
        false => Vec::new(),
    }
}

/// Clients that must observe the kernel before the workload: its allocations, its stacks, its changes of
/// code.
const FROM_BOOT: &[&str] = &["code", "coverage", "kaddrcheck", "stackcheck"];
/// The first step of each workload: the guest loads the driver.
const FIRST_STEP: &str = "load";
/// The value of `--from` that is not a step.
const BOOT: &str = "boot";
const WORKLOAD: &str = "workload";

/// When the clients are attached.
#[derive(Debug, PartialEq, Eq)]
pub struct Attachment {
    /// True to attach at the kernel's first instruction.
    pub at_start: bool,
    /// The step of the workload at whose beginning they attach.
    from: Option<String>,
    /// The step at whose beginning they detach.
    until: Option<String>,
}

impl Attachment {
    /// The times that `--from`, `--until` and `--detached` ask for.
    pub fn of(plan: &ProfilePlan, chosen: &[Selection]) -> Attachment {
        let from = match plan.from.as_deref() {
            None if plan.detached => None,
            None => Some(default_from(&plan.scope, chosen)),
            given => given,
        };
        let step =
            from.filter(|from| *from != BOOT).map(|from| if from == WORKLOAD { FIRST_STEP } else { from });
        Attachment {
            at_start: from == Some(BOOT) && !plan.detached,
            from: step.map(str::to_owned),
            until: plan.until.clone(),
        }
    }

    /// The request to the clients at the beginning of this step of the workload.
    pub fn at(&self, step: &str) -> Option<Request> {
        match step {
            _ if self.from.as_deref() == Some(step) => Some(Request::Attach),
            _ if self.until.as_deref() == Some(step) => Some(Request::Detach),
            _ => None,
        }
    }
}

/// The default of `--from`. The boot runs no code of drivers, so with a driver scope it adds nothing else to
/// the results.
fn default_from(scope: &str, chosen: &[Selection]) -> &'static str {
    let from_boot = |choice: &ClientChoice| FROM_BOOT.contains(&choice.name.as_str());
    let of_modules = scope == "driver" || scope.starts_with("module:");
    match of_modules || chosen.iter().flat_map(|plugin| &plugin.clients).any(from_boot) {
        true => BOOT,
        false => WORKLOAD,
    }
}

/// A plugin that is ready to be loaded.
pub struct ReadyPlugin {
    /// The library and its configuration, for QEMU.
    pub plugin: Plugin,
    /// The socket for requests to it.
    pub socket: PathBuf,
    /// The file for its clients' results.
    pub results: PathBuf,
    /// What it reaches: the kernel's image, the folder of its socket, and files that options of its clients name.
    pub reach: Jail,
}

/// The file for the results of a plugin's clients.
pub fn results(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("clients-{number}.json"))
}

/// Writes the configuration of the plugins.
pub fn configure(
    chosen: &[Selection],
    plan: &ProfilePlan,
    prepared: &Prepared,
    image: &KernelImage,
    folder: &Path,
    sockets: &Path,
    attached: bool,
) -> Result<Vec<ReadyPlugin>, HostError> {
    let kernel = tracer_config(image, &SummaryTable::for_image(image), &[], "")?;
    let base = ClientConfig {
        modules: module_list(image)?,
        image: absolute(&prepared.kernel.vmlinuz)?,
        scope: scope(&plan.scope, prepared, image)?,
        clients: Vec::new(),
        socket: PathBuf::new(),
        results: PathBuf::new(),
        attached,
        kernel: guardrail_trace::config::TracerConfig { hooks: Vec::new(), arguments: Vec::new(), ..kernel },
    };
    let plug = |(number, plugin): (usize, &Selection)| {
        let library = match &plugin.library {
            Some(library) => library.clone(),
            None => folders::library(CLIENTS)?,
        };
        let socket = sockets.join(format!("clients-{number}"));
        let results = results(folder, number);
        let config = folder.join(format!("clients-{number}.config.json"));
        let text = ClientConfig {
            clients: plugin.clients.clone(),
            socket: socket.clone(),
            results: results.clone(),
            ..base.clone()
        };
        let text = serde_json::to_vec(&text).map_err(|error| HostError::Run(error.to_string()))?;
        fs::write(&config, text).map_err(HostError::io("write", config.display()))?;
        // Results of an earlier run in the folder are removed.
        let _ = fs::remove_file(&results);
        let named = named(&words(&plugin.clients));
        let reach = Jail::new().reads(&base.image).writes(sockets).unix_sockets().and(&named);
        Ok(ReadyPlugin { plugin: Plugin { library, config }, socket, results, reach })
    };
    chosen.iter().enumerate().map(plug).collect()
}

/// The options of clients, as words that may name files.
fn words(clients: &[ClientChoice]) -> Vec<String> {
    let options = clients.iter().flat_map(|client| &client.options);
    options.map(|(key, value)| format!("{key}={value}")).collect()
}

/// The parts of `--scope`: its kind, and the names behind it.
pub fn scope_parts(text: &str) -> Result<(&str, Vec<String>), HostError> {
    let (kind, list) = text.split_once(':').unwrap_or((text, ""));
    // The kind may be repeated before each further name.
    let items: Vec<String> = list
        .split(',')
        .map(|item| item.strip_prefix(kind).and_then(|rest| rest.strip_prefix(':')).unwrap_or(item))
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect();
    match (kind, items.is_empty()) {
        ("kernel" | "driver", true) | ("module" | "function", false) => Ok((kind, items)),
        _ => Err(HostError::Usage(format!(
            "'{text}' is no scope; use kernel, driver, module:NAME,… or function:GLOB,…"
        ))),
    }
}

/// The code that `--scope` names, in this kernel.
fn scope(text: &str, prepared: &Prepared, image: &KernelImage) -> Result<Scope, HostError> {
    let (kind, items) = scope_parts(text)?;
    Ok(match kind {
        "driver" => Scope::Modules(drivers::drivers(prepared).map(|driver| driver.name.clone()).collect()),
        "module" => Scope::Modules(items.iter().map(|name| name.replace('-', "_")).collect()),
        "function" => Scope::Functions { ranges: ranges(&items, image), patterns: items },
        _ => Scope::Kernel,
    })
}

/// The link-time ranges of the image's functions that match the patterns.
fn ranges(patterns: &[String], image: &KernelImage) -> Vec<(u64, u64)> {
    let mut functions: Vec<(u64, String)> = image
        .symbols()
        .filter(|symbol| matches!(symbol.kind, 't' | 'T' | 'w' | 'W'))
        .map(|symbol| (symbol.address, symbol.name.to_owned()))
        .collect();
    functions.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (i, (start, name)) in functions.iter().enumerate() {
        // The cold part of a function has its own symbol, but belongs to the function.
        let plain = name.split('.').next().unwrap_or(name);
        if !patterns.iter().any(|pattern| guardrail_trace::client::fits(pattern, plain)) {
            continue;
        }
        let end = functions[i..].iter().find(|next| next.0 > *start).map_or(*start + 1, |next| next.0);
        match ranges.last_mut() {
            Some(last) if *start <= last.1 => last.1 = last.1.max(end),
            _ => ranges.push((*start, end)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_options() {
        let chosen = clients(&["null:a=1:b=x".to_owned()]).unwrap();
        assert_eq!(chosen.len(), 1);
        assert_eq!(chosen[0].clients[0].options["b"], "x");
        for (bad, why) in [
            ("", "no client is named"),
            ("nul", "there is no client nul; there are blocks"),
            ("null:a", "an option is KEY=VALUE"),
            ("null,null", "named twice"),
            ("./none.so", "there is no client at"),
        ] {
            let error = clients(&[bad.to_owned()]).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn clients_attach_where_what_they_watch_begins() {
        let attachment = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let value = |name: &str| {
                let at = words.iter().position(|word| *word == name)?;
                words.get(at + 1).map(|word| (*word).to_owned())
            };
            let plan = ProfilePlan {
                clients: vec![value("--client").unwrap()],
                scope: value("--scope").unwrap_or("kernel".to_owned()),
                from: value("--from"),
                detached: words.contains(&"--detached"),
                workload: None,
                drivers: Vec::new(),
                kernel: String::new(),
                device: None,
                until: None,
                smp: 1,
                memory: 512,
                no_kaslr: false,
                append: Vec::new(),
                timeout: 1,
                variables: Vec::new(),
                parameters: Vec::new(),
                files: Vec::new(),
                qemu: Vec::new(),
                out: None,
            };
            let attachment = Attachment::of(&plan, &clients(&plan.clients).unwrap());
            (attachment.at_start, attachment.from)
        };
        let at = |step: &str| (false, Some(step.to_owned()));
        for (line, expected) in [
            ("--client blocks", at("load")),
            ("--client blocks --from workload", at("load")),
            ("--client blocks --from boot", (true, None)),
            ("--client blocks --from ping", at("ping")),
            ("--client blocks,kaddrcheck", (true, None)),
            ("--client blocks --scope driver", (true, None)),
            ("--client blocks --scope function:vfs_*", at("load")),
            ("--client kaddrcheck --from load", at("load")),
            ("--client blocks --detached", (false, None)),
            ("--client blocks --detached --from boot", (false, None)),
            ("--client blocks --detached --from ping", at("ping")),
        ] {
            assert_eq!(attachment(line), expected, "{line}");
        }
    }
}
