//! What an expression is like as a whole, computed when it is made: nobody has to go through it for that.

use crate::ir::instruction::Binary;

/// How large an expression is, and what is in it.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// How many nodes it has as a tree.
    pub nodes: u32,
    /// Nodes on the longest way to a leaf.
    height: u32,
    /// The first symbol above all of its symbols.
    pub free: u32,
    /// Whether there is arithmetic in it, other than with bits.
    sum: bool,
}

impl Size {
    /// That of a leaf that is no symbol.
    const LEAF: Size = Size { nodes: 1, height: 1, free: 0, sum: false };

    /// That of a symbol.
    pub fn symbol(symbol: u32) -> Self {
        Size { free: symbol + 1, ..Size::LEAF }
    }

    /// That of an expression with these operands. `operation` is absent where it is no operation on two.
    pub fn above<'a>(operation: Option<Binary>, operands: impl Iterator<Item = &'a Size>) -> Self {
        let bits = |operation| {
            matches!(operation, Binary::And | Binary::Or | Binary::Xor | Binary::LShr | Binary::Shl)
        };
        let own = Size { sum: !operation.is_none_or(bits), ..Size::LEAF };
        operands.fold(own, |all, one| Size {
            nodes: all.nodes.saturating_add(one.nodes),
            height: all.height.max(one.height.saturating_add(1)),
            free: all.free.max(one.free),
            sum: all.sum | one.sum,
        })
    }

    /// Whether there is arithmetic in it that can go on for ever, other than with bits; or it is higher than this.
    pub fn has_sum(&self, height: u32) -> bool {
        self.sum || self.height > height
    }
}
