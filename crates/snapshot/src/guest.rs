//! Finds the kernel and its modules in a saved guest.

use crate::dump::Dump;
use crate::error::{Error, Result};
use crate::paging::Space;
use crate::symbols::{Section, Symbol};
use guardrail_binfmt::module::SymbolKind;
use guardrail_binfmt::orc::{Frames, MAX_ENTRIES};
use guardrail_binfmt::{KernelImage, ModuleImage};

/// Upper bound of the KASLR slide.
const MOST: u64 = 1 << 30;
/// Bytes of the kernel's banner that must match.
const BANNER: u64 = 64;
const MAX_MODULES: usize = 1024;
const MAX_SECTIONS: usize = 256;
const MAX_NAME: usize = 64;

/// A module that is loaded in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Name of the module. It comes from the guest, so it may hold anything.
    pub name: String,
    /// Names and guest virtual addresses of its sections, as far as the kernel has them in sysfs.
    pub sections: Vec<(String, u64)>,
}

impl Loaded {
    /// Guest virtual address of a section.
    fn address_of(&self, section: &str) -> Option<u64> {
        self.sections.iter().find(|(name, _)| name == section).map(|(_, address)| *address)
    }
}

/// A saved guest with the kernel found in it.
#[derive(Debug)]
pub struct Guest<'a> {
    dump: &'a Dump,
    space: Space,
    slide: u64,
}

impl<'a> Guest<'a> {
    /// Finds the kernel of `image` in a saved guest.
    pub fn find(dump: &'a Dump, image: &KernelImage) -> Result<Guest<'a>> {
        // All vCPUs have the same kernel. A vCPU may not show it if it was about to start. The same
        // holds if it ran a user program and the kernel hides from those.
        for cpu in dump.cpus() {
            let space = Space::of(dump, cpu);
            if let Some(slide) = slide(dump, &space, image) {
                return Ok(Guest { dump, space, slide });
            }
        }
        Err(Error::damaged(dump.path(), format!("the kernel {} is not in its memory", image.release())))
    }

    /// The KASLR slide: the distance from link-time to guest virtual addresses.
    pub fn slide(&self) -> u64 {
        self.slide
    }

    /// The kernel's address space.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The loaded modules, as far as the kernel's list can be followed.
    pub fn modules(&self, image: &KernelImage) -> Vec<Loaded> {
        self.try_modules(image).unwrap_or_default()
    }

    fn try_modules(&self, image: &KernelImage) -> Option<Vec<Loaded>> {
        let btf = image.btf();
        let link = btf.member_offset("module", "list")?;
        let name = btf.member_offset("module", "name")?;
        let head = image.address_of("modules")?.checked_add(self.slide)?;
        let mut modules = Vec::new();
        for at in entries(head, |at| self.word(at)) {
            let module = at.checked_sub(link)?;
            if let Some(name) = self.space.text(self.dump, module.checked_add(name)?, MAX_NAME) {
                modules.push(Loaded { name, sections: self.sections(image, module).unwrap_or_default() });
            }
        }
        Some(modules)
    }

    /// The sections of the module whose `struct module` is at `module`, from the module's sysfs
    /// attributes. A null ends the list of pointers to attributes. Each attribute holds a section's
    /// name. The address follows the attribute (up to 6.13) or is in it.
    fn sections(&self, image: &KernelImage, module: u64) -> Option<Vec<(String, u64)>> {
        let btf = image.btf();
        let attributes = self.word(module.checked_add(btf.member_offset("module", "sect_attrs")?)?)?;
        let group = btf.member_offset("module_sect_attrs", "grp")?;
        let list = group.checked_add(btf.member_offset("attribute_group", "bin_attrs")?)?;
        let list = self.word(attributes.checked_add(list)?)?;
        let name = btf.member_offset("bin_attribute", "attr.name")?;
        let address = btf
            .member_offset("module_sect_attr", "address")
            .or_else(|| btf.member_offset("bin_attribute", "private"))?;
        let mut sections = Vec::new();
        for i in 0..MAX_SECTIONS as u64 {
            let Some(attribute) = self.word(list.checked_add(8 * i)?).filter(|at| *at != 0) else { break };
            let text = self.word(attribute.checked_add(name)?)?;
            let address = self.word(attribute.checked_add(address)?)?;
            sections.push((self.space.text(self.dump, text, MAX_NAME)?, address));
        }
        Some(sections)
    }

    /// The kernel's sections and symbols, at their addresses in this guest.
    pub fn kernel(&self, image: &KernelImage) -> (Vec<Section>, Vec<Symbol>) {
        let moved = |address: u64| address.wrapping_add(self.slide);
        let sections: Vec<Section> = image
            .sections()
            // Lower addresses are offsets from the start of each CPU's per-CPU memory.
            .filter(|(_, address, _)| address >> 63 == 1)
            .map(|(name, address, size)| Section {
                name: name.to_owned(),
                address: moved(address),
                size,
                code: image.is_text(address),
            })
            .collect();
        let symbol = |symbol: guardrail_binfmt::kallsyms::Symbol<'_>| Symbol {
            name: symbol.name.to_owned(),
            address: moved(symbol.address),
            size: image.symbol_at(symbol.address).map_or(0, |located| located.size),
            code: matches!(symbol.kind, 't' | 'T' | 'w' | 'W'),
            local: symbol.kind.is_ascii_lowercase(),
        };
        let symbols = image.symbols().filter(|symbol| symbol.address >> 63 == 1).map(symbol).collect();
        (sections, symbols)
    }

    /// Adds the unwind frames of the kernel's own code.
    pub fn kernel_frames(&self, image: &KernelImage, frames: &mut Frames) {
        let section = |name: &str| image.sections().find(|(n, _, _)| *n == name);
        let bytes = |name: &str| {
            let (_, address, size) = section(name)?;
            Some((address.wrapping_add(self.slide), image.bytes_at(address, size)?))
        };
        if let (Some((places_at, places)), Some((_, entries))) =
            (bytes(".orc_unwind_ip"), bytes(".orc_unwind"))
        {
            let code = image.sections().filter(|(_, address, _)| image.is_text(*address));
            let code = code.map(|(_, address, size)| {
                let start = address.wrapping_add(self.slide);
                start..start.saturating_add(size)
            });
            frames.add(code, places_at, places, entries);
        }
    }

    /// Adds the unwind frames of a module, from its tables in the guest's memory. The tables in its file
    /// are not relocated.
    pub fn module_frames(&self, loaded: &Loaded, file: &ModuleImage, frames: &mut Frames) {
        let read = |name: &str| {
            let address = loaded.address_of(name)?;
            let size = file.sections().find(|section| section.name == name)?.size;
            let size = usize::try_from(size).ok().filter(|size| *size <= 8 * MAX_ENTRIES)?;
            let mut bytes = vec![0; size];
            self.space.read(self.dump, address, &mut bytes)?;
            Some((address, bytes))
        };
        let (Some((places_at, places)), Some((_, entries))) = (read(".orc_unwind_ip"), read(".orc_unwind"))
        else {
            return;
        };
        let code = file.sections().filter(|section| section.alloc && section.exec).filter_map(|section| {
            let start = loaded.address_of(section.name)?;
            Some(start..start.saturating_add(section.size))
        });
        frames.add(code, places_at, &places, &entries);
    }

    fn word(&self, virt: u64) -> Option<u64> {
        self.space.word(self.dump, virt)
    }
}

/// The slide at which the kernel's banner is found.
fn slide(dump: &Dump, space: &Space, image: &KernelImage) -> Option<u64> {
    let banner = image.address_of("linux_banner")?;
    let wanted = image.bytes_at(banner, BANNER)?;
    let step = usize::try_from(image.align().max(0x1000)).ok()?;
    let mut found = vec![0; wanted.len()];
    (0..MOST).step_by(step).find(|slide| {
        let at = banner.checked_add(*slide);
        at.and_then(|at| space.read(dump, at, &mut found)).is_some() && found == wanted
    })
}

/// The addresses of a module's sections, under the names in its file. Other names from the guest are
/// left out.
pub fn placed(loaded: &Loaded, file: &ModuleImage) -> Vec<(String, u64)> {
    let known = |name: &str| file.sections().any(|section| section.alloc && section.name == name);
    loaded.sections.iter().filter(|(name, _)| known(name)).cloned().collect()
}

/// The sections and symbols of a module without line information.
pub fn module_symbols(loaded: &Loaded, file: &ModuleImage) -> (Vec<Section>, Vec<Symbol>) {
    let addresses: Vec<Option<u64>> =
        file.sections().map(|section| loaded.address_of(section.name).filter(|_| section.alloc)).collect();
    let section = |(section, address): (guardrail_binfmt::module::ModuleSection<'_>, &Option<u64>)| {
        Some(Section {
            name: section.name.to_owned(),
            address: (*address)?,
            size: section.size,
            code: section.exec,
        })
    };
    let sections = file.sections().zip(&addresses).filter_map(section).collect();
    let symbol = |symbol: &guardrail_binfmt::module::ModuleSymbol| {
        let section = addresses.get(usize::from(symbol.section?))?;
        let code = match symbol.kind {
            SymbolKind::Function => true,
            SymbolKind::Object => false,
            _ => return None,
        };
        Some(Symbol {
            name: file.symbol_name(symbol).to_owned(),
            address: (*section)?.checked_add(symbol.value)?,
            size: symbol.size,
            code,
            local: symbol.local,
        })
    };
    (sections, file.symbols().iter().filter_map(symbol).collect())
}

/// The entries of a list of the kernel's, as far as it can be followed. One that leads around without its head ends as well.
fn entries(head: u64, next: impl Fn(u64) -> Option<u64>) -> impl Iterator<Item = u64> {
    std::iter::successors(next(head), move |&at| next(at)).take_while(move |&at| at != head).take(MAX_MODULES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_leads_around_ends() {
        let follow = |pairs: &'static [(u64, u64)]| {
            let next = move |at| pairs.iter().find(|pair| pair.0 == at).map(|pair| pair.1);
            entries(1, next).collect::<Vec<u64>>()
        };
        assert_eq!(follow(&[(1, 5), (5, 7), (7, 1)]), [5, 7]);
        assert_eq!(follow(&[(1, 1)]), [] as [u64; 0]);
        assert_eq!(follow(&[(1, 5), (5, 7)]), [5, 7]);
        assert_eq!(follow(&[]), [] as [u64; 0]);
        assert_eq!(follow(&[(1, 5), (5, 7), (7, 5)]).len(), MAX_MODULES);
    }
}
