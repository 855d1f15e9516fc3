//! The part of the Python package that is not Python: memory on chosen pages behind the buffer protocol, and which pages memory
//! is on. `superpage/__init__.py` makes NumPy arrays of it.

#![expect(unsafe_code, reason = "hands memory to Python")]

use pyo3::exceptions::{PyBufferError, PyMemoryError, PyOSError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use superpage_array::{Advice, Error, PageArray, Pages, Placement, Request, Shortfall};

/// Bytes on chosen pages. Arrays over them keep them alive.
#[pyclass(frozen)]
#[derive(Debug)]
struct Memory {
    bytes: PageArray<u8>,
}

#[pymethods]
impl Memory {
    #[new]
    fn new(python: Python<'_>, length: usize, pages: &str, require: bool) -> PyResult<Self> {
        let pages: Pages = pages.parse().map_err(to_value_error)?;
        let shortfall = if require { Shortfall::Refused } else { Shortfall::Allowed };
        // To have memory may take a while, but no thread of Python's touches it yet.
        let request = Request { pages, shortfall };
        let bytes = python.detach(|| PageArray::zeroed(length, request));
        Ok(Self { bytes: bytes.map_err(to_exception)? })
    }

    /// The buffer protocol: all of it, as bytes that may be written to.
    ///
    /// # Safety
    /// As Python's `getbufferproc`: `view` is a buffer of the caller's, or nothing.
    unsafe fn __getbuffer__(
        this: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no buffer to fill"));
        }
        let bytes = &this.get().bytes;
        let start = bytes.as_ptr().cast_mut().cast();
        let length = bytes.len().cast_signed();
        // SAFETY: the view is the caller's; the memory stays where it is as long as this object lives, of which the view has a
        // reference. No slice of it is made in this module, so that whoever has a view may write.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, this.as_ptr(), start, length, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(this.py())) }
    }
}

fn to_value_error(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn to_exception(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::TooLarge { .. } | Error::Memory { .. } | Error::Missing { .. } => {
            PyMemoryError::new_err(text)
        }
        Error::Alignment(_) => PyValueError::new_err(text),
        Error::Unknown(_) => PyOSError::new_err(text),
    }
}

/// The bytes of memory by the pages that they are on: base, huge, gigantic, swapped, absent.
#[pyfunction]
fn placement(
    python: Python<'_>,
    address: usize,
    length: usize,
) -> PyResult<(u64, u64, u64, u64, u64)> {
    let found = python.detach(|| Placement::at(address, length)).map_err(to_exception)?;
    let Placement { base, huge, gigantic, swapped, absent } = found;
    Ok((base.0, huge.0, gigantic.0, swapped.0, absent.0))
}

/// Puts memory on huge pages in place.
#[pyfunction]
fn collapse(python: Python<'_>, address: usize, length: usize) -> PyResult<()> {
    python.detach(|| superpage_array::collapse_at(address, length)).map_err(to_exception)
}

/// Says how memory will be used.
#[pyfunction]
fn advise(python: Python<'_>, address: usize, length: usize, how: &str) -> PyResult<()> {
    let found = Advice::ALL.iter().find(|(name, _)| *name == how);
    let Some((_, advice)) = found else {
        let names = Advice::ALL.map(|(name, _)| name).join(", ");
        return Err(PyValueError::new_err(format!(
            "no advice is called {how:?}: give one of {names}"
        )));
    };
    python.detach(|| superpage_array::advise_at(address, length, *advice)).map_err(to_exception)
}

/// The module.
#[pymodule]
fn _superpage(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Memory>()?;
    module.add_function(wrap_pyfunction!(placement, module)?)?;
    module.add_function(wrap_pyfunction!(advise, module)?)?;
    module.add_function(wrap_pyfunction!(collapse, module)?)
}
