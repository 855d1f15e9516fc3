//! An array of plain data on chosen pages.

#![expect(unsafe_code, reason = "sees mapped memory as elements")]

use crate::error::{Error, Result};
use crate::memory::{Accounting, Memory};
use crate::pages::Pages;
use crate::placement::Placement;
use crate::width::to_usize;
use bytemuck::Zeroable;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use superpage_units::Bytes;

/// The outcome for an array for which the kernel has fewer huge or gigantic pages than were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shortfall {
    /// The array lies on smaller pages as far as there are none: instead of gigantic on huge pages, instead of huge on base
    /// pages.
    #[default]
    Allowed,
    /// The array is not made, and the caller has an error.
    Refused,
}

/// A request for an array's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The pages that are asked for.
    pub pages: Pages,
    /// The outcome where the kernel has too few of them.
    pub shortfall: Shortfall,
}

impl From<Pages> for Request {
    fn from(pages: Pages) -> Self {
        Self { pages, shortfall: Shortfall::Allowed }
    }
}

/// An array of plain data, a part of which lies on huge or gigantic pages.
///
/// Its length is fixed. Huge and gigantic pages are there when it is; base pages come with the first touch. It begins at a
/// border of the pages that were asked for. Dropping it gives the memory back and drops no element.
pub struct PageArray<T> {
    memory: Memory,
    length: usize,
    elements: PhantomData<T>,
}

impl<T: Zeroable> PageArray<T> {
    const HAS_NOTHING_TO_DROP: () =
        assert!(!std::mem::needs_drop::<T>(), "elements are never dropped");
    const FITS_A_PAGE: () = assert!(align_of::<T>() <= to_usize(superpage_units::BASE_PAGE_BYTES));

    /// An array of `length` zeroes.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Memory`], and [`Error::Missing`] where [`Shortfall::Refused`] was said.
    pub fn zeroed(length: usize, request: impl Into<Request>) -> Result<Self> {
        Self::mapped(length, request.into(), Accounting::Counted, 1)
    }

    /// An array of `length` zeroes that begins at a border of `alignment`, a power of two; as [`PageArray::zeroed`] for less than
    /// the array's pages.
    ///
    /// # Errors
    /// As [`PageArray::zeroed`]; [`Error::Alignment`] for what is no power of two.
    pub fn aligned(length: usize, request: impl Into<Request>, alignment: Bytes) -> Result<Self> {
        if !alignment.0.is_power_of_two() {
            return Err(Error::Alignment(alignment));
        }
        Self::mapped(length, request.into(), Accounting::Counted, to_usize(alignment.0))
    }

    /// An array of `length` zeroes of which few will ever be written to, on base pages: it may be larger than memory, and the
    /// kernel does not refuse it for that.
    ///
    /// # Errors
    /// As [`PageArray::zeroed`].
    pub fn sparse(length: usize) -> Result<Self> {
        Self::mapped(length, Pages::BASE.into(), Accounting::Sparse, 1)
    }

    fn mapped(
        length: usize,
        request: Request,
        accounting: Accounting,
        alignment: usize,
    ) -> Result<Self> {
        let () = Self::HAS_NOTHING_TO_DROP;
        let () = Self::FITS_A_PAGE;
        let too_large = Error::TooLarge { count: length, each: Bytes(size_of::<T>() as u64) };
        let bytes =
            length.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
        let memory = Memory::map(bytes.ok_or(too_large)?, request, accounting, alignment)?;
        Ok(Self { memory, length, elements: PhantomData })
    }

    /// An array of `length` elements, each made from its index.
    ///
    /// # Errors
    /// As [`PageArray::zeroed`].
    pub fn from_fn(
        length: usize,
        request: impl Into<Request>,
        mut element: impl FnMut(usize) -> T,
    ) -> Result<Self> {
        let mut array = Self::zeroed(length, request)?;
        for (index, place) in array.iter_mut().enumerate() {
            *place = element(index);
        }
        Ok(array)
    }

    /// A copy of `elements`.
    ///
    /// # Errors
    /// As [`PageArray::zeroed`].
    pub fn copy_of(elements: &[T], request: impl Into<Request>) -> Result<Self>
    where
        T: Copy,
    {
        let mut array = Self::zeroed(elements.len(), request)?;
        array.copy_from_slice(elements);
        Ok(array)
    }

    /// Makes it shorter, and gives the whole PMD ranges behind its new end back, unless they are on gigantic pages.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
        self.memory.release_behind(self.length * size_of::<T>());
    }
}

impl<T> PageArray<T> {
    /// Its size, without what is left of its last page.
    #[must_use]
    pub fn size(&self) -> Bytes {
        Bytes((self.length * size_of::<T>()) as u64)
    }

    /// Which pages all of its memory is on, as the kernel says, with what is left of its last page.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn placement(&self) -> Result<Placement> {
        self.memory.placement()
    }

    /// Its elements, as a pointer. It stays valid until the array is dropped.
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.memory.as_ptr().cast()
    }
}

impl<T> Deref for PageArray<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory has room for so many elements, aligned to a page; it began as zeroes, which are elements
        // (`Zeroable`, on all ways to make an array), and whoever writes to it needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.length) }
    }
}

impl<T> DerefMut for PageArray<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only slice.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().cast(), self.length) }
    }
}

impl<T> fmt::Debug for PageArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = std::any::type_name::<T>();
        f.debug_struct("PageArray")
            .field("of", &name)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}
