//! Guards all modules below folders, with an action before and after every call between them and the kernel,
//! and certifies the results: `cargo run --release -p guardrail-certify --example modules -- FOLDER…`.
//! Prints each module that cannot be guarded or is not certified, and sums.

#[path = "../../rewrite/examples/guarded/mod.rs"]
mod guarded;
// The files are walked on several threads here.
#[allow(dead_code)]
#[path = "../../rewrite/examples/modules/mod.rs"]
mod modules;

use guardrail_binfmt::module::unpack;
use guardrail_certify::{Certificate, certify};
use guardrail_rewrite::passes::checks::Checks;
use guardrail_rewrite::{Object, rewrite};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What became known of all modules.
#[derive(Default)]
struct Sums {
    certified: usize,
    not: usize,
    refused: usize,
    trusted: usize,
    numbers: BTreeMap<&'static str, usize>,
    privileged: BTreeMap<String, usize>,
}

fn main() {
    let mut files = Vec::new();
    for folder in std::env::args_os().skip(1) {
        modules::find(Path::new(&folder), &mut files);
    }
    files.sort();
    let (next, sums) = (AtomicUsize::new(0), Mutex::new(Sums::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    one(file, &sums);
                }
            });
        }
    });
    let sums = sums.into_inner().unwrap_or_default();
    println!("{} certified, {} not, {} refused by guarding", sums.certified, sums.not, sums.refused);
    println!("{:9} modules with trusted functions", sums.trusted);
    for (name, number) in sums.numbers {
        println!("{number:9} {name}");
    }
    println!("instructions with privileges: {:?}", sums.privileged);
}

fn one(file: &Path, sums: &Mutex<Sums>) {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let guarded = std::fs::read(file).map_err(|error| error.to_string()).and_then(|data| guard(&name, data));
    if let (Ok(folder), Ok(data)) = (std::env::var("KEEP"), &guarded) {
        let _ = std::fs::write(Path::new(&folder).join(&name), data);
    }
    let result = match guarded {
        Ok(data) => certify(&name, &data).map_err(|error| error.to_string()),
        Err(error) => {
            let Ok(mut sums) = sums.lock() else { return };
            sums.refused += 1;
            return println!("{name}: refused: {error}");
        }
    };
    let Ok(mut sums) = sums.lock() else { return };
    match result {
        Ok(certificate) => add(&name, &mut sums, certificate),
        Err(error) => {
            sums.not += 1;
            println!("{name}: {error}");
        }
    }
}

fn add(name: &str, sums: &mut Sums, certificate: Certificate) {
    match certificate.faults.len() {
        0 => sums.certified += 1,
        count => {
            sums.not += 1;
            println!("{name}: {count} faults");
            certificate
                .faults
                .iter()
                .take(std::env::var("MOST").ok().and_then(|most| most.parse().ok()).unwrap_or(6))
                .for_each(|fault| println!("    {fault}"));
        }
    }
    sums.trusted += usize::from(!certificate.trusted.is_empty());
    let counts = certificate.counts;
    let numbers = [
        ("stores that a check allows", counts.checked),
        ("stores into the frame", counts.frame),
        ("stores into per-CPU variables", counts.own),
        ("stores of what was there", counts.same),
        ("stores and calls in code that is replaced", counts.replaced),
        ("calls by pointer that a check allows", counts.calls),
        ("calls of imports without a thunk", counts.plain),
        ("returns", counts.returns),
        ("thunks for imports", certificate.thunks),
        ("thunks for entries", certificate.entries),
        ("actions", certificate.actions),
    ];
    for (name, number) in numbers {
        *sums.numbers.entry(name).or_default() += number;
    }
    for (name, number) in certificate.privileged {
        *sums.privileged.entry(name).or_default() += number;
    }
}

/// Guards a module; functions that cannot be proven are trusted.
fn guard(name: &str, data: Vec<u8>) -> Result<Vec<u8>, String> {
    let data = unpack(name, data).map_err(|error| error.to_string())?;
    let object = Object::read(name, &data).map_err(|error| error.to_string())?;
    let (runtime, mut border) = (guarded::runtime(), guarded::border(&object));
    // More than any function has.
    border.default_entry.stack_words = 16;
    let mut trusted: Vec<String> = Vec::new();
    loop {
        let mut checks = Checks::new(1)
            .guarded("module", &runtime)
            .trusting(trusted.iter().cloned())
            .interposing(border.clone());
        match rewrite(name, data.clone(), &mut [&mut checks]) {
            Ok(rewritten) => return Ok(rewritten.file),
            Err(guardrail_rewrite::RewriteError::Unproven { doubts }) => {
                let before = trusted.len();
                trusted.extend(doubts.into_iter().map(|doubt| doubt.function));
                trusted.sort();
                trusted.dedup();
                if trusted.len() == before {
                    return Err("functions stay unproven".into());
                }
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}
