//! Effects on DMA mappings and DMA memory: the verbs of `dma.txt`.

use super::Resolver;
use guardrail_binfmt::btf::TypeId;
use guardrail_knowledge::effect::{DmaOp, MapKind, Ptr};
use guardrail_trace::config::{Deref, ListCount, ListWalk};

impl Resolver<'_, '_> {
    /// The effect that the words state; `None` if their verb is not of this sort.
    pub(super) fn dma(&mut self, words: &[&str]) -> Option<DmaOp> {
        let arg = |i: usize| self.arg(words.get(i).copied()?);
        let kind = || match words.last().copied() {
            Some("resource") => MapKind::Resource,
            _ => MapKind::Single,
        };
        Some(match *words.first()? {
            "map" => {
                let (dev, dir) = (arg(1)?, arg(4)?);
                let physical = words[2].strip_prefix("phys(").and_then(|rest| rest.strip_suffix(')'));
                let (ptr, physical) = match physical {
                    Some(name) => (Ptr::Arg(self.arg(name)?), Some(self.arg(name)?)),
                    None => (self.ptr(words[2])?, None),
                };
                DmaOp::Map { dev, ptr, physical, len: self.len(words[3])?, dir, kind: kind() }
            }
            "unmap" => {
                let (dev, addr, dir) = (arg(1)?, arg(2)?, arg(4)?);
                DmaOp::Unmap { dev, addr, len: self.len(words[3])?, dir, kind: kind() }
            }
            "maplist" => {
                let (dev, list, count, dir) = (arg(1)?, arg(2)?, arg(3), arg(4)?);
                if count.is_none() {
                    // The table that the argument points to names the segments of the list.
                    self.deref(list, "sg_table", "sgl")?;
                    self.deref(list, "sg_table", "orig_nents")?;
                }
                self.scatterlist(list, count, false)?;
                DmaOp::MapList { dev, list, count, dir }
            }
            "unmaplist" => {
                let (dev, list, count, dir) = (arg(1)?, arg(2)?, arg(3)?, arg(4)?);
                self.scatterlist(list, Some(count), true)?;
                DmaOp::UnmapList { dev, list, count: Some(count), dir }
            }
            "sync" => {
                let (dev, addr, dir) = (arg(1)?, arg(2)?, arg(4)?);
                let for_cpu = words.last() == Some(&"cpu");
                DmaOp::SyncSingle { dev, addr, offset: None, len: self.len(words[3])?, dir, for_cpu }
            }
            "synclist" => {
                let (dev, list, count, dir) = (arg(1)?, arg(2)?, arg(3)?, arg(4)?);
                self.scatterlist(list, Some(count), true)?;
                DmaOp::SyncList { dev, list, count, dir, for_cpu: words.last() == Some(&"cpu") }
            }
            "coherent" => DmaOp::AllocCoherent { dev: arg(1)?, size: arg(2)?, handle: arg(3)? },
            "uncoherent" => {
                DmaOp::FreeCoherent { dev: arg(1)?, size: arg(2)?, cpu: arg(3)?, handle: arg(4)? }
            }
            "pool" => DmaOp::CreatePool { dev: arg(1)?, size: arg(2)? },
            "unpool" => DmaOp::DestroyPool { pool: arg(1)? },
            "poolalloc" => DmaOp::PoolAlloc { pool: arg(1)?, handle: arg(2)? },
            "poolfree" => DmaOp::PoolFree { pool: arg(1)?, cpu: arg(2)?, handle: arg(3)? },
            "dmaother" => DmaOp::Other { dev: arg(1)? },
            "mapio" => DmaOp::MapIo,
            "unmapio" => DmaOp::UnmapIo { addr: arg(1)? },
            "unbind" => DmaOp::Unbind { dev: arg(1)? },
            "askvmalloc" => DmaOp::AskVmalloc { addr: arg(1)? },
            "namedriver" => DmaOp::NameDriver,
            "needunmap" => DmaOp::NeedUnmap { dev: arg(1)? },
            _ => return None,
        })
    }

    fn member(&self, structure: &str, member: &str) -> Option<(u64, TypeId)> {
        let btf = self.image.btf();
        btf.member(btf.struct_named(structure)?, member)
    }

    /// Adds a member of the structure behind an argument to what is read.
    fn deref(&mut self, arg: u8, structure: &str, member: &str) -> Option<()> {
        let (offset, ty) = self.member(structure, member)?;
        let size = self.image.btf().size_of(ty).filter(|size| matches!(size, 1 | 2 | 4 | 8))? as u8;
        self.derefs.push(Deref { arg, offset, size });
        Some(())
    }

    /// Adds a scatterlist to what is read. For each segment that is the page with its flags, offset, length,
    /// bus address, length on the bus.
    fn scatterlist(&mut self, arg: u8, count: Option<u8>, at_entry: bool) -> Option<()> {
        let btf = self.image.btf();
        let list = btf.struct_named("scatterlist")?;
        // Where a kernel keeps no separate length on the bus, the length counts.
        let on_bus =
            self.member("scatterlist", "dma_length").or_else(|| self.member("scatterlist", "length"))?;
        let mut fields = Vec::new();
        for name in ["page_link", "offset", "length", "dma_address"] {
            fields.push(self.member("scatterlist", name)?);
        }
        fields.push(on_bus);
        let fields = fields
            .into_iter()
            .map(|(offset, ty)| Some((offset, btf.size_of(ty).filter(|size| matches!(size, 4 | 8))? as u8)))
            .collect::<Option<Vec<_>>>()?;
        let (through, count) = match count {
            Some(count) => (None, ListCount::Arg(count)),
            None => {
                let orig_nents = self.member("sg_table", "orig_nents")?.0;
                (Some(self.member("sg_table", "sgl")?.0), ListCount::Member(orig_nents))
            }
        };
        let stride = btf.size_of(list)?;
        let chain = Some(fields[0].0);
        self.lists.push(ListWalk {
            arg,
            through,
            count,
            stride,
            fields,
            chain,
            at_entry,
            at_return: !at_entry,
        });
        Some(())
    }
}
