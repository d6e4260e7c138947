"""A model that is not on this machine: its config.json and the headers of its files, by range requests.

Only when asked for, and only with the extra [hf]: huggingface_hub brings the client, the endpoint and the
token. The weights themselves are never fetched.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from headrace.errors import InputError, UnreachableError, UsageError
from headrace.extras import missing
from headrace.models.catalogue import geometry_from_document
from headrace.models.geometry import ModelGeometry
from headrace.models.headers import StoredBytes, add_up, sizes
from headrace.models.reading import read_json

_ID = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")


def fetch_model(model_id: str) -> ModelGeometry:
    """Returns the geometry of a model on the Hugging Face hub, with the exact bytes of its checkpoint.

    Raises UsageError without huggingface_hub or for a name that is no id; UnreachableError where the hub
    does not answer; InputError where the model is not there, or is nothing that can be read.
    """
    if not _ID.fullmatch(model_id):
        raise UsageError(f"{model_id[:200]!r} is no id on the hub; one has the form owner/name")
    try:
        from huggingface_hub import HfApi, hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, NotASafetensorsRepoError, SafetensorsParsingError
    except ImportError as error:
        raise missing("huggingface_hub", "fetching a model") from error
    try:
        config = read_json(Path(hf_hub_download(model_id, "config.json")))
        metadata = HfApi().get_safetensors_metadata(model_id)
    except HfHubHTTPError as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in {401, 403, 404}:
            told = "is not there, or needs a token (HF_TOKEN)"
            raise InputError(f"{model_id}: {told}: HTTP {status}; check the id") from error
        raise UnreachableError(f"{model_id}: the hub answered HTTP {status}; try again later") from error
    except (NotASafetensorsRepoError, SafetensorsParsingError) as error:
        raise InputError(
            f"{model_id}: has no readable safetensors files; give a config.json instead"
        ) from error
    except OSError as error:
        raise UnreachableError(f"{model_id}: the hub does not answer: {str(error)[:200]}") from error
    geometry = geometry_from_document(config, model_id, f"huggingface.co/{model_id}")
    stored = _stored(metadata, len(geometry.layers))
    return replace(geometry, stored=stored)


def _stored(metadata: object, text_layers: int) -> StoredBytes:
    """Returns the bytes that huggingface_hub's metadata adds up to."""
    files = getattr(metadata, "files_metadata", {})
    headers = []
    for name, file in files.items():
        entries = {
            tensor: {"dtype": info.dtype, "shape": list(info.shape), "data_offsets": list(info.data_offsets)}
            for tensor, info in file.tensors.items()
        }
        end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
        headers.append(sizes(entries, end, name))
    return add_up(headers, text_layers=text_layers)
