//! Makes mutants of a stock module.

use crate::audit::audit;
use crate::code::{Function, functions};
use crate::edit::{Edit, Place, new_text, relocation, text};
use crate::elf::Elf;
use crate::error::Error;
use crate::kinds::{Kind, Planted, Site, sites};
use crate::random::Random;
use guardrail_binfmt::ModuleImage;
use guardrail_binfmt::module::unpack;
use object::elf::R_X86_64_NONE;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashSet;

/// The version of the format of descriptions.
pub const MUTANT_SCHEMA: &str = "guardrail-mutant/1";
/// Most bytes of code in a module; the largest modules have some megabytes.
const MAX_CODE: usize = 64 << 20;
/// How many draws in a row may repeat a mutant before the series ends.
const SAME: u64 = 200;

/// A stock driver that mutants are made of.
#[derive(Debug)]
pub struct Subject {
    what: String,
    driver: String,
    kernel: String,
    elf: Elf,
    functions: Vec<Function>,
}

/// A changed driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The content of the module's file.
    pub bytes: Vec<u8>,
    /// What was changed, for readers and programs.
    pub description: Description,
}

/// What a mutant is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The version of this description.
    pub schema: String,
    /// The driver's name, as `modinfo` shows it.
    pub driver: String,
    /// The release of the kernel that it is built for.
    pub kernel: String,
    /// The kind of all its bugs.
    pub kind: Kind,
    /// The seed that decided where they are.
    pub seed: u64,
    /// The number of the mutant among those of this kind and seed.
    pub number: u64,
    /// SHA-256 of the stock file without its signature.
    pub stock: String,
    /// SHA-256 of the mutant.
    pub sha256: String,
    /// The planted bugs, in the order of the file.
    pub bugs: Vec<Bug>,
}

impl Description {
    /// A name for the mutant's files, without an ending.
    pub fn name(&self) -> String {
        format!("{}-{}-{:04}", self.kind, self.seed, self.number)
    }
}

/// One planted bug.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bug {
    /// The name of the function.
    pub function: String,
    /// Offset of its place in the function.
    pub offset: u64,
    /// What the bug is, in words.
    pub what: String,
    /// The instructions that were changed.
    pub changes: Vec<Change>,
}

/// One changed instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The name of the section.
    pub section: String,
    /// Offset in the section.
    pub at: u64,
    /// Offset in the function.
    pub offset: u64,
    /// The text of the old instruction.
    pub old: String,
    /// The text of the new instructions.
    pub new: String,
}

impl Subject {
    /// Reads a module, compressed or not; `what` names it in errors.
    pub fn parse(what: &str, file: Vec<u8>) -> Result<Subject, Error> {
        let file = unpack(what, file)?;
        let elf = Elf::parse(what, &file)?;
        let image = ModuleImage::parse(what, file)?;
        let code = elf.sections.iter().filter(|section| section.exec).map(|section| section.file.len());
        if code.sum::<usize>() > MAX_CODE {
            let detail = "it has more code than any module can have".to_owned();
            return Err(Error::Damaged { what: what.to_owned(), detail });
        }
        Ok(Subject {
            what: what.to_owned(),
            driver: image.name(),
            kernel: image.release().unwrap_or_default().to_owned(),
            functions: functions(&elf),
            elf,
        })
    }

    /// The driver's name, as the kernel shows it.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// The stock driver in the form of mutants: without compression and signature.
    pub fn stock(&self) -> &[u8] {
        &self.elf.data
    }

    /// How many places there are for a kind of bug.
    pub fn places(&self, kind: Kind) -> usize {
        sites(&self.elf, &self.functions, kind).len()
    }

    /// The mutants of a kind, each with some bugs, no two alike. Where places are few, a mutant has bugs in
    /// half of them, so that mutants differ.
    pub fn mutants(&self, kind: Kind, seed: u64, bugs: usize) -> Result<Mutants<'_>, Error> {
        let sites = sites(&self.elf, &self.functions, kind);
        if sites.is_empty() {
            return Err(Error::NoPlace { what: self.what.clone(), kind: kind.name() });
        }
        let stock = digest(&self.elf.data);
        let bugs = bugs.min(sites.len().div_ceil(2));
        Ok(Mutants { subject: self, sites, kind, seed, bugs, next: 0, draw: 0, made: HashSet::new(), stock })
    }

    /// Chooses places and changes them, as `draw` decides.
    fn plant(
        &self,
        sites: &[Site],
        kind: Kind,
        seed: u64,
        draw: u64,
        bugs: usize,
    ) -> Vec<(usize, usize, Planted)> {
        let mut random = Random::new(seed, kind.name(), draw);
        let mut order: Vec<usize> = (0..sites.len()).collect();
        random.shuffle(&mut order);
        let mut taken: HashSet<(usize, usize)> = HashSet::new();
        let mut planted = Vec::new();
        while planted.len() < bugs {
            let increment = random.increment();
            // Where the usual increment has no room anywhere, the smallest may have.
            let found = [increment, 8].into_iter().find_map(|increment| {
                order.iter().enumerate().find_map(|(position, &index)| {
                    let site = &sites[index];
                    let one = site.plant(&self.elf, &self.functions, increment, &mut random)?;
                    let free = one.edits.iter().all(|edit| !taken.contains(&(site.function, edit.insn)));
                    free.then_some((position, index, one))
                })
            });
            let Some((position, index, one)) = found else { break };
            order.remove(position);
            let site = &sites[index];
            taken.extend(one.edits.iter().map(|edit| (site.function, edit.insn)));
            planted.push((site.function, site.insn, one));
        }
        // The bugs stand in the order of the file, as a reader expects.
        planted.sort_by_key(|(function, insn, _)| (*function, *insn));
        planted
    }

    /// The file with some bugs.
    fn apply(&self, planted: &[(usize, usize, Planted)]) -> Result<Vec<u8>, Error> {
        let mut data = self.elf.data.clone();
        for (function, _, one) in planted {
            for edit in &one.edits {
                self.write(&mut data, &self.functions[*function], edit)?;
            }
        }
        Ok(data)
    }

    fn write(&self, data: &mut [u8], function: &Function, edit: &Edit) -> Result<(), Error> {
        let unsound = |detail: &str| Error::Unsound { what: self.what.clone(), detail: detail.to_owned() };
        let insn = &function.insns[edit.insn];
        let section = &self.elf.sections[function.section];
        let start = section.file.start + insn.at() as usize;
        let place = data.get_mut(start..start + insn.instr.len());
        match place.filter(|place| place.len() == edit.bytes.len()) {
            Some(place) => place.copy_from_slice(&edit.bytes),
            None => return Err(unsound("an instruction would change its length")),
        }
        let mut info = |entry: usize, info: u64, addend: i64| {
            let fields =
                data.get_mut(entry + 8..entry + 24).ok_or_else(|| unsound("a relocation is gone"))?;
            fields[..8].copy_from_slice(&info.to_le_bytes());
            fields[8..].copy_from_slice(&addend.to_le_bytes());
            Ok(())
        };
        match edit.place {
            Place::Keep => Ok(()),
            Place::Drop => section.relocations[insn.relocations.clone()]
                .iter()
                .try_for_each(|one| info(one.entry, u64::from(R_X86_64_NONE), 0)),
            Place::To { symbol, addend } => {
                let one = relocation(&self.elf, function, insn)
                    .ok_or_else(|| unsound("a call without a relocation is redirected"))?;
                info(one.entry, (symbol as u64) << 32 | u64::from(one.kind), addend)
            }
        }
    }

    fn describe(&self, planted: &[(usize, usize, Planted)]) -> Vec<Bug> {
        let bug = |(function, insn, one): &(usize, usize, Planted)| {
            let function = &self.functions[*function];
            let change = |edit: &Edit| {
                let insn = &function.insns[edit.insn];
                Change {
                    section: self.elf.sections[function.section].name.clone(),
                    at: insn.at(),
                    offset: insn.at() - function.start,
                    old: text(&self.elf, function, insn),
                    new: new_text(&self.elf, function, edit),
                }
            };
            Bug {
                function: function.name.clone(),
                offset: function.insns[*insn].at() - function.start,
                what: one.what.clone(),
                changes: one.edits.iter().map(change).collect(),
            }
        };
        planted.iter().map(bug).collect()
    }
}

/// The mutants of a kind and a seed, one after the other; it ends where there are no others.
#[derive(Debug)]
pub struct Mutants<'a> {
    subject: &'a Subject,
    sites: Vec<Site>,
    kind: Kind,
    seed: u64,
    bugs: usize,
    next: u64,
    /// The number of the next draw of places; some draws repeat a mutant.
    draw: u64,
    made: HashSet<String>,
    stock: String,
}

impl Mutants<'_> {
    /// How many places there are.
    pub fn places(&self) -> usize {
        self.sites.len()
    }
}

impl Iterator for Mutants<'_> {
    type Item = Result<Mutant, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        for _ in 0..SAME {
            let draw = self.draw;
            self.draw += 1;
            let planted = self.subject.plant(&self.sites, self.kind, self.seed, draw, self.bugs);
            if planted.is_empty() {
                return None;
            }
            let bytes = match self.subject.apply(&planted) {
                Ok(bytes) => bytes,
                Err(error) => return Some(Err(error)),
            };
            let sha256 = digest(&bytes);
            if sha256 == self.stock || !self.made.insert(sha256.clone()) {
                continue;
            }
            if let Err(error) = audit(&self.subject.what, &self.subject.elf.data, &bytes) {
                return Some(Err(error));
            }
            let description = Description {
                schema: MUTANT_SCHEMA.to_owned(),
                driver: self.subject.driver.clone(),
                kernel: self.subject.kernel.clone(),
                kind: self.kind,
                seed: self.seed,
                number: self.next,
                stock: self.stock.clone(),
                sha256,
                bugs: self.subject.describe(&planted),
            };
            self.next += 1;
            return Some(Ok(Mutant { bytes, description }));
        }
        None
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Function as Code;

    fn subject() -> Subject {
        let mut code = Code::new();
        for _ in 0..10 {
            // cmp edi,5; jg +3; mov [rbx+8],eax
            code = code.code(&[0x83, 0xff, 5, 0x7f, 3, 0x89, 0x43, 8]).call("memcpy");
        }
        Subject::parse("drv.ko", code.code(&[0xc3]).module()).unwrap()
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let subject = subject();
        let made = |seed, count| -> Vec<Mutant> {
            let mutants = subject.mutants(Kind::DeleteAssignment, seed, 3).unwrap();
            mutants.take(count).collect::<Result<_, _>>().unwrap()
        };
        let (short, long) = (made(1, 5), made(1, 20));
        assert_eq!(short[..], long[..5]);
        assert_ne!(made(1, 1)[0].bytes, made(2, 1)[0].bytes);
        let all: HashSet<&[u8]> = long.iter().map(|mutant| mutant.bytes.as_slice()).collect();
        assert_eq!(all.len(), 20);
        let first = &long[0].description;
        assert_eq!(first.name(), "delete-assignment-1-0000");
        assert_eq!((first.bugs.len(), first.driver.as_str(), first.kernel.as_str()), (3, "drv", "6.1.0-9"));
        assert!(first.bugs.iter().all(|bug| bug.changes[0].new == "nothing"));
    }

    #[test]
    fn there_are_no_more_mutants_than_there_are_choices() {
        let subject = subject();
        assert_eq!(subject.places(Kind::FlipBranch), 10);
        // There are ten places: one of them, and then half of them.
        assert_eq!(subject.mutants(Kind::FlipBranch, 1, 1).unwrap().count(), 10);
        for bugs in [5, 50] {
            let mut mutants = subject.mutants(Kind::FlipBranch, 1, bugs).unwrap();
            assert!(mutants.by_ref().take(200).all(|one| one.unwrap().description.bugs.len() == 5));
            // There are 252, of which the last few are rarely drawn.
            assert!(mutants.count() <= 52);
        }
        let error = subject.mutants(Kind::LargerCopy, 1, 5).unwrap_err();
        assert_eq!(error.to_string(), "drv.ko has no place for a bug of the kind larger-copy");
    }

    #[test]
    fn what_is_no_module_is_refused() {
        assert!(Subject::parse("x", b"hello".to_vec()).is_err());
        let file = Code::new().code(&[0xc3]).module();
        for cut in 0..file.len() {
            let _ = Subject::parse("x", file[..cut].to_vec());
        }
    }

    #[test]
    fn damaged_modules_give_mutants_or_an_error() {
        let mut object = Code::new()
            .code(&[0x83, 0xff, 5, 0x7f, 3, 0x89, 0x43, 8, 0x48, 0x89, 0xdf])
            .call("use")
            .code(&[0x85, 0xc0, 0x78, 0, 0x48, 0x89, 0xdf])
            .call("kfree")
            .code(&[0xc3])
            .object();
        let table = object.section(".altinstructions", crate::testing::TABLE, &[0; 14]);
        object.relocate(table, 0, crate::testing::PC32, 1, 5);
        object.relocate(table, 4, crate::testing::PC32, 1, 5);
        let file = object.build();
        for at in 0..file.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut other = file.clone();
                other[at] ^= change;
                let Ok(subject) = Subject::parse("x", other) else { continue };
                for kind in Kind::ALL {
                    for mutant in subject.mutants(kind, 1, 2).into_iter().flatten().take(1) {
                        drop(mutant);
                    }
                }
            }
        }
    }
}
