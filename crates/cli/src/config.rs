//! `guardrail.toml`: values of options in tables that are named after commands, and in profiles.
//!
//! The command line comes first, then the profile, then the command's table, then the built-in value. What the file sets is
//! put into the command line before it is parsed, so that both have the same rules.

mod packages;

use crate::args::{Cli, ConfigCommand};
use crate::errors::{CliError, Status};
use crate::output;
use clap::{Arg, Command, CommandFactory};
use guardrail_host::HostError;
use guardrail_vm::error::suggest;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use toml::{Table, Value};

/// The file of the current folder.
const FILE: &str = "guardrail.toml";
/// The environment's name for another file. Nothing is read where it is empty.
const OTHER: &str = "GUARDRAIL_CONFIG";
/// The environment's name for a profile.
const PROFILE: &str = "GUARDRAIL_PROFILE";
/// The most bytes of the file that are read.
const MOST: u64 = 1 << 20;
/// The tables and values of the file that are no commands: those of the policy, the profiles, and the mirror.
const OWN: [&str; 4] = ["kinds", "suppress", "profile", packages::TABLE];
/// Options that may precede the command and have no value.
const LOUDNESS: [&str; 4] = ["-q", "--quiet", "-v", "--verbose"];
/// Options that start programs or write files. A file that merely lies in a folder, perhaps with somebody's driver, cannot set
/// them; one that the user names can.
const ASKED_FOR: [&str; 16] = [
    "catalog",
    "certificate",
    "client",
    "draw",
    "engine",
    "exec",
    "on-finding",
    "out",
    "output",
    "promela",
    "qemu-arg",
    "record",
    "static",
    "store",
    "vm-record",
    "write-baseline",
];

/// Whether a device is devices alone.
fn is_plain_device(device: &str) -> bool {
    !device.split('+').any(|part| part.trim_start().starts_with('-'))
}

/// What a file sets for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    /// The option's name, without the dashes.
    option: String,
    /// Its values; none for an option that has none.
    values: Vec<String>,
    /// The table that sets it.
    from: String,
}

/// The file that counts.
struct File {
    path: PathBuf,
    /// The user named it.
    named: bool,
    table: Table,
}

/// The command line with what the file sets for its command.
pub fn expand(words: Vec<OsString>) -> Result<Vec<OsString>, CliError> {
    let first = words.get(1).and_then(|word| word.to_str());
    if first.is_some_and(|name| name.starts_with("internal-")) {
        return Ok(words);
    }
    let asked = profile_of(&words);
    let Some(file) = open()? else {
        // The environment may name a profile for other folders than this.
        let missing = |name| usage(format!("there is no {FILE} here, and so no profile '{name}'"));
        return asked.map_or(Ok(words), |name| Err(missing(name)));
    };
    let profile = asked.or_else(|| env(PROFILE));
    file.check()?;
    packages::apply(&file)?;
    let (path, at) = command_of(&words);
    let Some(command) = find(&path) else { return Ok(words) };
    let given = given(&command, &words[at..]);
    let settings = file.settings(&path, profile.as_deref())?;
    let excludes = |one: &str, other: &str| {
        let rivals = option(&command, one).map(|arg| command.get_arg_conflicts_with(arg));
        rivals.into_iter().flatten().any(|arg| arg.get_long() == Some(other))
    };
    let stands_back = |setting: &&Setting| {
        let own = setting.option.as_str();
        given.iter().any(|given| *given == own || excludes(own, given) || excludes(given, own))
    };
    let mut expanded = words[..at].to_vec();
    for setting in settings.iter().filter(|setting| !stands_back(setting)) {
        let name = &setting.option;
        match setting.values.as_slice() {
            [] => expanded.push(format!("--{name}").into()),
            values => expanded.extend(values.iter().map(|value| format!("--{name}={value}").into())),
        }
    }
    expanded.extend_from_slice(&words[at..]);
    Ok(expanded)
}

/// `guardrail config`.
pub fn run(command: &ConfigCommand, profile: Option<&str>) -> Result<Status, CliError> {
    let ConfigCommand::Show { command: name } = command;
    let path: Vec<String> = name.split(' ').map(str::to_owned).collect();
    let shown = find(&path).ok_or_else(|| usage(unknown("command", name, &commands())))?;
    let settings = match open()? {
        Some(file) => file.settings(&path, profile.map(str::to_owned).or_else(|| env(PROFILE)).as_deref())?,
        None => Vec::new(),
    };
    let mut text = String::new();
    for arg in shown.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let Some(name) = arg.get_long().filter(|name| !["help", "profile"].contains(name)) else { continue };
        let set = settings.iter().find(|setting| setting.option == name);
        let usual =
            || arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
        let (values, from): (Vec<String>, &str) =
            set.map_or_else(|| (usual(), "built in"), |set| (set.values.clone(), &set.from));
        if set.is_some() || !values.is_empty() && arg.get_action().takes_values() {
            text += &format!("{:<22}{:<28}{from}\n", format!("--{name}"), values.join(" "));
        }
    }
    output::text(&text)?;
    Ok(Status::Clean)
}

/// Opens the file; `None` where it does not exist.
fn open() -> Result<Option<File>, CliError> {
    let other = std::env::var_os(OTHER);
    let (path, named) = match &other {
        Some(path) if path.is_empty() => return Ok(None),
        Some(path) => (PathBuf::from(path), true),
        None => (PathBuf::from(FILE), false),
    };
    // A pipe would be waited for.
    if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(usage(format!("{} is no file", path.display())));
    }
    let mut text = String::new();
    match fs::File::open(&path).and_then(|file| file.take(MOST).read_to_string(&mut text)) {
        Ok(_) => {}
        Err(error) if !named && error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(HostError::io("read", path.display())(error)),
    }
    let table = text.parse::<Table>().map_err(|error| {
        let line =
            error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        usage(format!(
            "{}: line {line}: {}",
            path.display(),
            error.message().lines().next().unwrap_or_default()
        ))
    })?;
    Ok(Some(File { path, named, table }))
}

impl File {
    /// Refuses tables and options that do not exist, whatever command is run.
    fn check(&self) -> Result<(), CliError> {
        self.check_commands(&self.table, &OWN)?;
        for (name, profile) in self.profiles()? {
            let profile =
                profile.as_table().ok_or_else(|| self.bad(&format!("profile '{name}' is no table")))?;
            self.check_commands(profile, &[])?;
        }
        Ok(())
    }

    fn check_commands(&self, table: &Table, own: &[&str]) -> Result<(), CliError> {
        for (name, value) in table.iter().filter(|(name, _)| !own.contains(&name.as_str())) {
            let command = find(std::slice::from_ref(name));
            let known: Vec<String> =
                commands().into_iter().chain(own.iter().map(|name| (*name).to_owned())).collect();
            let command = command.ok_or_else(|| self.bad(&unknown("command", name, &known)))?;
            let options = value
                .as_table()
                .ok_or_else(|| self.bad(&format!("'{name}' has to be a table, as in [{name}]")))?;
            self.check_options(&command, name, options)?;
        }
        Ok(())
    }

    fn check_options(&self, command: &Command, name: &str, options: &Table) -> Result<(), CliError> {
        for (key, value) in options {
            if let (Some(inner), Some(table)) = (command.find_subcommand(key), value.as_table()) {
                self.check_options(inner, &format!("{name}.{key}"), table)?;
                continue;
            }
            let known: Vec<String> =
                command.get_arguments().filter_map(Arg::get_long).map(str::to_owned).collect();
            let arg = option(command, key)
                .ok_or_else(|| self.bad(&unknown(&format!("option of [{name}]"), key, &known)))?;
            // A part of a device that begins with a dash is any option of QEMU.
            let any_option = key == "device" && !value.as_str().is_some_and(is_plain_device);
            if (ASKED_FOR.contains(&key.as_str()) || any_option) && !self.named {
                let why = format!(
                    "[{name}] cannot set '{key}', which writes files or starts programs; give it on the command line, or name the file in {OTHER}"
                );
                return Err(self.bad(&why));
            }
            let fits = match value {
                Value::Boolean(_) => !arg.get_action().takes_values(),
                Value::String(_) | Value::Integer(_) => arg.get_action().takes_values(),
                Value::Array(many) => {
                    arg.get_action().takes_values() && many.iter().all(|one| one.is_str() || one.is_integer())
                }
                _ => false,
            };
            if !fits {
                let wanted = if arg.get_action().takes_values() {
                    "a string, a number, or a list of them"
                } else {
                    "true or false"
                };
                return Err(self.bad(&format!("'{key}' of [{name}] has to be {wanted}")));
            }
        }
        Ok(())
    }

    /// What the file sets for a command, of each option what counts.
    fn settings(&self, path: &[String], profile: Option<&str>) -> Result<Vec<Setting>, CliError> {
        let mut settings = Vec::new();
        if let Some(name) = profile {
            let profiles = self.profiles()?;
            let known: Vec<String> = profiles.keys().cloned().collect();
            let table = profiles.get(name).and_then(Value::as_table);
            let table = table.ok_or_else(|| self.bad(&unknown("profile", name, &known)))?;
            self.collect(table, path, &format!("{}, profile {name}", self.path.display()), &mut settings);
        }
        self.collect(&self.table, path, &self.path.display().to_string(), &mut settings);
        Ok(settings)
    }

    /// Adds the options of a command's table that are not set yet.
    fn collect(&self, table: &Table, path: &[String], from: &str, settings: &mut Vec<Setting>) {
        let table = path.iter().try_fold(table, |table, name| table.get(name).and_then(Value::as_table));
        for (key, value) in table.into_iter().flatten() {
            let word = |value: &Value| match value {
                Value::Integer(number) => number.to_string(),
                other => other.as_str().unwrap_or_default().to_owned(),
            };
            let values = match value {
                Value::Boolean(false) | Value::Table(_) => continue,
                Value::Boolean(true) => Vec::new(),
                Value::Array(many) => many.iter().map(word).collect(),
                one => vec![word(one)],
            };
            // An empty list sets nothing.
            let empty = matches!(value, Value::Array(many) if many.is_empty());
            if !empty && settings.iter().all(|setting| setting.option != *key) {
                settings.push(Setting { option: key.clone(), values, from: from.to_owned() });
            }
        }
    }

    fn profiles(&self) -> Result<Table, CliError> {
        match self.table.get("profile") {
            None => Ok(Table::new()),
            Some(Value::Table(table)) => Ok(table.clone()),
            Some(_) => Err(self.bad("'profile' has to be a table, as in [profile.ci.check]")),
        }
    }

    fn bad(&self, why: &str) -> CliError {
        usage(format!("{}: {why}", self.path.display()))
    }
}

fn usage(why: String) -> CliError {
    HostError::Usage(why)
}

fn unknown(what: &str, name: &str, known: &[String]) -> String {
    let near = suggest(name, known.iter().map(String::as_str));
    let near = if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) };
    format!("there is no {what} '{name}'{near}")
}

/// The names of the commands.
fn commands() -> Vec<String> {
    let whole = Cli::command();
    whole
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| command.get_name().to_owned())
        .collect()
}

/// A command by the names that lead to it.
fn find(path: &[String]) -> Option<Command> {
    let whole = Cli::command();
    let known = path.first().is_some_and(|name| commands().contains(name));
    let found = path.iter().try_fold(&whole, |command, name| command.find_subcommand(name));
    found.filter(|_| known).cloned()
}

fn option<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| arg.get_long() == Some(name) && name != "help")
}

/// The names of the command that the words call, and the place behind them.
fn command_of(words: &[OsString]) -> (Vec<String>, usize) {
    let whole = Cli::command();
    let (mut command, mut path, mut at) = (&whole, Vec::new(), 1);
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        if word == "--profile" && path.is_empty() {
            at += 2;
        } else if (word.starts_with("--profile=") || LOUDNESS.contains(&word)) && path.is_empty() {
            at += 1;
        } else if let Some(inner) = command.find_subcommand(word) {
            path.push(word.to_owned());
            command = inner;
            at += 1;
        } else {
            break;
        }
    }
    (path, at.min(words.len()))
}

/// The profile that the words name.
fn profile_of(words: &[OsString]) -> Option<String> {
    let mut words =
        words.iter().take_while(|word| *word != OsStr::new("--")).filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        match word.strip_prefix("--profile") {
            Some("") => return words.next().map(str::to_owned),
            Some(rest) if rest.starts_with('=') => return Some(rest[1..].to_owned()),
            _ => {}
        }
    }
    None
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The options of a command that words give.
fn given<'a>(command: &'a Command, words: &[OsString]) -> Vec<&'a str> {
    let words: Vec<&str> =
        words.iter().take_while(|word| *word != OsStr::new("--")).filter_map(|word| word.to_str()).collect();
    let gives = |arg: &&Arg| {
        let long = arg.get_long().map(|name| format!("--{name}"));
        let short = arg.get_short().map(|name| format!("-{name}"));
        let is = |word: &&str| {
            long.as_ref().is_some_and(|long| {
                *word == long || word.strip_prefix(long.as_str()).is_some_and(|rest| rest.starts_with('='))
            }) || short
                .as_ref()
                .is_some_and(|short| word.starts_with(short.as_str()) && !word.starts_with("--"))
        };
        words.iter().any(is)
    };
    command.get_arguments().filter(gives).filter_map(Arg::get_long).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> File {
        File { path: "f.toml".into(), named: false, table: text.parse().unwrap() }
    }

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn refused(text: &str) -> String {
        file(text).check().unwrap_err().to_string()
    }

    #[test]
    fn a_profile_comes_before_the_table_of_the_command() {
        let file = file(
            "[check]\nkernel = \"6.12\"\nsmp = 1\nset = [\"A=1\", \"B=2\"]\niommu = true\nno-kaslr = false\n
             [profile.ci.check]\nsmp = 4\n[profile.other.survey]\njobs = 2\n",
        );
        file.check().unwrap();
        let path = ["check".to_owned()];
        let set = |profile: Option<&str>| {
            let settings = file.settings(&path, profile).unwrap();
            let mut said: Vec<String> =
                settings.iter().map(|one| format!("{}={}", one.option, one.values.join("+"))).collect();
            said.sort();
            said.join(" ")
        };
        assert_eq!(set(None), "iommu= kernel=6.12 set=A=1+B=2 smp=1");
        assert_eq!(set(Some("ci")), "iommu= kernel=6.12 set=A=1+B=2 smp=4");
        assert_eq!(set(Some("other")), set(None));
        let error = file.settings(&path, Some("othr")).unwrap_err().to_string();
        assert_eq!(error, "f.toml: there is no profile 'othr'; did you mean other?");
    }

    #[test]
    fn what_the_file_names_wrongly_is_refused() {
        assert_eq!(refused("[chek]\n"), "f.toml: there is no command 'chek'; did you mean check?");
        assert!(
            refused("[check]\nkernl = \"6.1\"\n")
                .contains("no option of [check] 'kernl'; did you mean kernel?")
        );
        assert!(refused("check = 3\n").contains("has to be a table"));
        assert!(refused("[check]\niommu = \"yes\"\n").contains("'iommu' of [check] has to be true or false"));
        assert!(refused("[check]\nsmp = true\n").contains("a string, a number, or a list"));
        assert!(refused("profile = 1\n").contains("[profile.ci.check]"));
        assert!(refused("[internal-gate]\n").contains("no command 'internal-gate'"));
        assert!(
            refused("[profile.x.check]\non-finding = \"rm -rf /\"\n").contains("cannot set 'on-finding'")
        );
        assert!(file("[kinds]\nleak = \"warn\"\n[vm.start]\nsmp = 1\n").check().is_ok());
    }

    #[test]
    fn the_command_and_its_options_are_found() {
        assert_eq!(command_of(&words("guardrail check e1000 --smp 1")), (vec!["check".to_owned()], 2));
        assert_eq!(
            command_of(&words("guardrail -q --profile ci check e1000")),
            (vec!["check".to_owned()], 5)
        );
        assert_eq!(
            command_of(&words("guardrail --profile ci vm start")),
            (vec!["vm".to_owned(), "start".to_owned()], 5)
        );
        assert_eq!(command_of(&words("guardrail --help")).0, Vec::<String>::new());
        assert_eq!(profile_of(&words("guardrail check x --profile=ci")), Some("ci".to_owned()));
        let check = find(&["check".to_owned()]).unwrap();
        assert_eq!(given(&check, &words("e1000 --smp=1 --kernel 6.1 -- --iommu")), ["kernel", "smp"]);
    }

    #[test]
    fn options_that_start_programs_or_write_files_exist() {
        fn has(command: &Command, name: &str) -> bool {
            option(command, name).is_some() || command.get_subcommands().any(|inner| has(inner, name))
        }
        for name in ASKED_FOR {
            assert!(has(&Cli::command(), name), "{name}");
        }
    }
}
