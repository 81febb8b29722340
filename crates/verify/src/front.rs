//! From C files to LLVM IR, by clang with the headers and options of a kernel.
//!
//! LLVM is not linked into the program: clang is a package of the distribution, its text format of one version is
//! stable, and a parser of our own is bounded and cannot crash on it.

use crate::ir::{Module, parse};
use guardrail_host::process::kill_with_parent;
use guardrail_jail::Jail;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Versions of clang whose text the parser reads, by the names of their programs.
const PROGRAMS: [&str; 3] = ["clang-14", "clang-13", "clang"];

/// How much of a line of clang's complaints is shown, in characters.
const LONGEST: usize = 400;

/// How C files are compiled.
#[derive(Clone, Debug)]
pub enum Headers {
    /// With the headers of a kernel: `usr/src/linux-headers-RELEASE`.
    Kernel(PathBuf),
    /// As plain C.
    Plain,
}

/// C files, and how they are compiled.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Where else headers are.
    pub folders: Vec<PathBuf>,
    /// Macros, as `NAME` or `NAME=VALUE`.
    pub definitions: Vec<String>,
    /// The headers.
    pub headers: Headers,
    /// What else the compiler reads, such as the tree that the files are of.
    pub tree: Option<PathBuf>,
}

impl Sources {
    /// The text that clang writes for each file. `stop` is asked between files.
    pub fn translate(&self, stop: &dyn Fn() -> bool) -> Result<Vec<String>, FrontError> {
        let one = |file: &PathBuf| {
            if std::fs::metadata(file).is_err() {
                return Err(other(format!("there is no file {}", file.display())));
            }
            if stop() {
                return Err(other("interrupted"));
            }
            translation(file, self)
        };
        self.files.iter().map(one).collect()
    }

    /// What the compiler reaches: its own files, headers, and the folder of a file.
    fn jail(&self, file: &Path) -> Jail {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let headers = match &self.headers {
            // What both flavors of headers share is beside them.
            Headers::Kernel(flavor) => {
                let real = flavor.canonicalize().ok();
                real.as_deref().and_then(Path::parent).into_iter().map(Path::to_path_buf).collect()
            }
            Headers::Plain => Vec::new(),
        };
        let own = SYSTEM.iter().map(PathBuf::from).chain(headers);
        let named =
            [folder.to_path_buf(), file.to_path_buf()].into_iter().chain(self.folders.iter().cloned());
        own.chain(named).chain(self.tree.clone()).fold(Jail::new().memory(MEMORY), Jail::reads)
    }
}

/// Where the compiler and its own headers are.
const SYSTEM: [&str; 7] =
    ["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", "/dev/null"];

/// The most address space of the compiler, in bytes.
const MEMORY: u64 = 8 << 30;

/// A fault in what the user gave, or in the machine.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    /// The C file does not compile: the compiler's words.
    #[error("{file} does not compile: {words}")]
    Compile {
        /// The file.
        file: String,
        /// What clang says, its first errors.
        words: String,
    },
    /// Something else, as one sentence.
    #[error("{0}")]
    Other(String),
}

fn other(text: impl Into<String>) -> FrontError {
    FrontError::Other(text.into())
}

/// The program to compile with.
pub fn clang() -> Result<&'static str, FrontError> {
    let mut newer = None;
    for program in PROGRAMS {
        let Ok(output) = Command::new(program).arg("--version").stdin(Stdio::null()).output() else {
            continue;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version =
            text.split("version ").nth(1).and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        match version {
            Some(13 | 14) => return Ok(program),
            Some(version) => newer = Some(version),
            None => {}
        }
    }
    Err(other(match newer {
        Some(version) => format!(
            "clang here is version {version}, but verify reads what clang-14 writes; install clang-14 (apt-get install clang-14)"
        ),
        None => "there is no clang here; install clang-14 (apt-get install clang-14)".to_owned(),
    }))
}

/// Compiles a file and reads the result. `folders` are searched for headers.
pub fn module(file: &Path, headers: &Headers, folders: &[PathBuf]) -> Result<Module, FrontError> {
    let (headers, folders) = (headers.clone(), folders.to_vec());
    let sources = Sources { files: Vec::new(), folders, definitions: Vec::new(), headers, tree: None };
    read(file, &translation(file, &sources)?)
}

/// Reads the text that clang wrote for a file.
pub fn read(file: &Path, text: &str) -> Result<Module, FrontError> {
    parse::module(&file.display().to_string(), text).map_err(other)
}

/// The text that clang writes for a file. Clang runs in a jail: it parses what others wrote.
fn translation(file: &Path, sources: &Sources) -> Result<String, FrontError> {
    let name = file.display().to_string();
    let program = clang()?;
    let mut command = Command::new(program);
    command.arg("-S").args(["-emit-llvm", "-g", "-O1", "-fno-discard-value-names"]);
    command.args(["-Xclang", "-disable-llvm-passes", "-fno-stack-protector", "-fno-color-diagnostics"]);
    command.args(["-ferror-limit=3", "-w", "-std=gnu11", "-fwrapv", "-fno-strict-aliasing", "-fno-common"]);
    match &sources.headers {
        Headers::Kernel(flavor) => kernel(&mut command, program, flavor, file)?,
        Headers::Plain => {
            command.arg("-DGUARDRAIL_PLAIN");
        }
    }
    for folder in &sources.folders {
        command.arg("-I").arg(folder);
    }
    command.args(sources.definitions.iter().map(|definition| format!("-D{definition}")));
    command.arg("-o").arg("-").arg(file);
    let (success, text, complaint) = bounded(&mut command, program, &sources.jail(file))?;
    if text.len() > parse::LARGEST {
        return Err(other(format!("the translation of {name} has more than {} MiB", parse::LARGEST >> 20)));
    }
    if !success {
        let errors: Vec<&str> = complaint.lines().filter(|line| line.contains("error:")).take(3).collect();
        let words = if errors.is_empty() { complaint.lines().take(3).collect::<Vec<_>>() } else { errors };
        let words = words.iter().map(|line| line.chars().take(LONGEST).collect::<String>());
        return Err(FrontError::Compile { file: name, words: words.collect::<Vec<_>>().join("; ") });
    }
    Ok(text)
}

/// Runs clang in a jail: whether it succeeded, and at most so much of its output and its complaints as the parser reads.
fn bounded(command: &mut Command, program: &str, jail: &Jail) -> Result<(bool, String, String), FrontError> {
    let cannot = |error: std::io::Error| other(format!("cannot run {program}: {error}"));
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    kill_with_parent(command);
    let child = guardrail_jail::spawn(command, jail);
    let mut child = child.map_err(|error| other(format!("cannot run {program}: {error}")))?;
    let stderr = child.stderr.take();
    let complaint = std::thread::spawn(move || {
        let mut stderr = stderr?;
        let mut text = Vec::new();
        stderr.by_ref().take(1 << 20).read_to_end(&mut text).ok()?;
        std::io::copy(&mut stderr, &mut std::io::sink()).ok()?;
        Some(text)
    });
    let mut text = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let read = stdout.take(parse::LARGEST as u64 + 1).read_to_end(&mut text);
        if read.is_err() || text.len() > parse::LARGEST {
            let _ = child.kill();
        }
    }
    let status = child.wait().map_err(cannot)?;
    let complaint = complaint.join().ok().flatten().unwrap_or_default();
    let words = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let text = String::from_utf8(text).unwrap_or_else(|error| words(error.into_bytes()));
    Ok((status.success(), text, words(complaint)))
}

/// The options that kbuild gives, without those that change code only.
fn kernel(command: &mut Command, program: &str, flavor: &Path, file: &Path) -> Result<(), FrontError> {
    let name = flavor.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let makefile = std::fs::read_to_string(flavor.join("Makefile")).unwrap_or_default();
    let common = makefile.lines().find_map(|line| {
        let path = line.strip_prefix("include ")?.trim().strip_suffix("/Makefile")?;
        Some(path.rsplit('/').next()?.to_owned())
    });
    let common =
        common.and_then(|common| Some(flavor.parent()?.join(common))).filter(|common| common.is_dir());
    let common = common.ok_or_else(|| other(format!("{name} has no common headers beside it")))?;
    let output = Command::new(program).arg("-print-resource-dir").output();
    let output = output.map_err(|error| other(format!("cannot run {program}: {error}")))?;
    let resources = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    command.arg("-nostdinc").arg("-isystem").arg(format!("{resources}/include"));
    for (tree, folder) in [
        (&common, "arch/x86/include"),
        (&flavor.to_path_buf(), "arch/x86/include/generated"),
        (&common, "include"),
        (&flavor.to_path_buf(), "include"),
        (&common, "arch/x86/include/uapi"),
        (&flavor.to_path_buf(), "arch/x86/include/generated/uapi"),
        (&common, "include/uapi"),
        (&flavor.to_path_buf(), "include/generated/uapi"),
    ] {
        command.arg("-I").arg(tree.join(folder));
    }
    for header in ["compiler-version.h", "kconfig.h", "compiler_types.h"] {
        command.arg("-include").arg(common.join("include/linux").join(header));
    }
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().replace('-', "_")).unwrap_or_default();
    command.args(["-D__KERNEL__", "-DMODULE", "-DCC_USING_FENTRY", "-fms-extensions"]);
    command.arg(format!("-DKBUILD_MODNAME=\"{stem}\"")).arg(format!("-DKBUILD_BASENAME=\"{stem}\""));
    command.arg(format!("-D__KBUILD_MODNAME=kmod_{stem}")).arg(format!("-DKBUILD_MODFILE=\"{stem}\""));
    command.args(["-m64", "-mno-sse", "-mno-mmx", "-mno-sse2", "-mno-3dnow", "-mno-avx", "-mno-80387"]);
    command.args(["-mno-red-zone", "-mcmodel=kernel", "-fshort-wchar", "-fno-PIE"]);
    Ok(())
}
