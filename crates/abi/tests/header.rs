//! Whether this crate is what `guardrail_abi.h` says: by our own reading of the header, and by a C compiler's.

mod generator;

use generator::Header;
use guardrail_abi as abi;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[test]
fn generated_from_the_header() {
    let header = folder("../../runtime/include/guardrail_abi.h");
    let header = Header::parse(&std::fs::read_to_string(header).unwrap());
    let (path, wanted) = (folder("src/generated.rs"), header.generate());
    if std::env::var_os("GUARDRAIL_ABI_WRITE").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap();
    assert!(
        found == wanted,
        "src/generated.rs is not what the header says; write it anew: GUARDRAIL_ABI_WRITE=1 cargo test -p guardrail-abi"
    );
}

#[test]
fn a_c_compiler_agrees() {
    let mut source = "#include <stdio.h>\n#include \"guardrail_abi.h\"\nint main(void)\n{\n".to_owned();
    for (expression, _) in abi::IN_C {
        writeln!(source, "\tprintf(\"%llu\\n\", (unsigned long long)({expression}));").unwrap();
    }
    for domain in 0..abi::DOMAINS {
        for right in 0..16 {
            writeln!(source, "\tprintf(\"%d\\n\", GUARDRAIL_TAG({domain}, {right}));").unwrap();
        }
    }
    source += "}\n";
    let work = tempfile::tempdir().unwrap();
    let (file, program) = (work.path().join("abi.c"), work.path().join("abi"));
    std::fs::write(&file, source).unwrap();
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut compile = Command::new(compiler);
    compile.arg("-I").arg(folder("tests/shim")).arg("-I").arg(folder("../../runtime/include"));
    assert!(compile.arg("-o").arg(&program).arg(&file).status().unwrap().success());
    let output = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let mut printed = output.lines().map(|line| line.parse::<u64>().unwrap());
    for (expression, value) in abi::IN_C {
        assert_eq!(printed.next(), Some(*value), "{expression}");
    }
    for domain in 0..abi::DOMAINS as u8 {
        for right in 0..16 {
            assert_eq!(
                printed.next(),
                Some(abi::tag(domain, right).into()),
                "GUARDRAIL_TAG({domain}, {right})"
            );
        }
    }
    assert_eq!(printed.next(), None);
}
