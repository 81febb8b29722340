//! Arguments of `guardrail verify`.

use super::Format;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The C files of a driver
    #[arg(value_name = "FILE.c", required_unless_present = "stock")]
    pub files: Vec<PathBuf>,
    /// Verify this driver of the kernel's own source, such as 8139cp, instead of C files; the source is fetched once
    #[arg(long, value_name = "DRIVER", conflicts_with_all = ["files", "no_kernel"])]
    pub stock: Option<String>,
    /// Add the protocols of this file to Guardrail's own, as `protocol header --chart` does; with --no-kernel, take them alone
    #[arg(long, value_name = "FILE")]
    pub chart: Option<PathBuf>,
    /// The kernel whose headers and options the C files are compiled with: 6.1, 6.12, 7.2, or a release
    #[arg(long, value_name = "KERNEL", default_value = guardrail_vm::kernels::DEFAULT, conflicts_with = "no_kernel")]
    pub kernel: String,
    /// Compile the C files as plain C, without headers of a kernel
    #[arg(long)]
    pub no_kernel: bool,
    /// Search this folder for headers, too; may be given several times
    #[arg(short = 'I', value_name = "FOLDER")]
    pub include: Vec<PathBuf>,
    /// The main function, where the files do not name a program
    #[arg(long, value_name = "FUNCTION", requires = "protocols")]
    pub main: Option<String>,
    /// The protocols of the main function, with spaces between
    #[arg(long, value_name = "NAMES", requires = "main")]
    pub protocols: Option<String>,
    /// How many seconds a program may take
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub timeout: u64,
    /// Write what proves the rules into this file
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// Check such a file by other code instead of searching
    #[arg(long, value_name = "FILE", conflicts_with_all = ["certificate", "draw"])]
    pub check: Option<PathBuf>,
    /// Write what the certificate of --check rests on into this file, for solvers that read SMT-LIB 2
    #[arg(long, value_name = "FILE.smt2", requires = "check")]
    pub smt: Option<PathBuf>,
    /// Write the driver with its protocols into this file as a model for Spin
    #[arg(long, value_name = "FILE.pml", conflicts_with_all = ["check", "certificate", "draw"])]
    pub promela: Option<PathBuf>,
    /// Decide each rule by itself, with as few states of the protocols as it needs, and print what each took
    #[arg(long, conflicts_with_all = ["certificate", "check"])]
    pub by_rule: bool,
    /// Draw the messages of the first finding into this file, as SVG
    #[arg(long, value_name = "FILE.svg")]
    pub draw: Option<PathBuf>,
    /// How the result is printed
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
}
