//! What an instance says of a failure.

use tuplane_wire::message::{FaultCode, WireFault};

use crate::engine::operator::OperatorError;
use crate::source::SourceError;

pub(in crate::engine) fn instance_fault(name: &str, message: &str) -> WireFault {
    WireFault::new(FaultCode::Instance, format!("{name}: {message}"))
}

pub(in crate::engine) fn fault(name: &str, error: &OperatorError) -> WireFault {
    match error {
        // The coordinator adds the place in words; it says more than an instance and a number would.
        OperatorError::Row { remark, .. } if remark.place.is_some() => {
            WireFault::new(FaultCode::Row, remark.text()).at(remark.place)
        }
        OperatorError::Row { .. } => WireFault::new(FaultCode::Row, format!("{name}: {error}")),
        OperatorError::Other(_) => instance_fault(name, &error.to_string()),
    }
}

pub(super) fn source_fault(name: &str, error: &SourceError) -> WireFault {
    let code = match error {
        SourceError::Row { .. } => FaultCode::Row,
        _ => FaultCode::Instance,
    };
    WireFault::new(code, format!("{name}: {error}"))
}
