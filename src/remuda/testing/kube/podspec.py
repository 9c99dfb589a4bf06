"""From a pod's document to what its container gets: environment, arguments and files of volumes."""

from __future__ import annotations

import base64
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from remuda.testing.kube.objects import Doc, Objects

_REFERENCE: Final = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
LOOPBACK: Final = "127.0.0.1"


class NotStartable(Exception):
    """What a container needs is not there.

    Args:
        reason: why it waits, in one word.
        message: the sentence about it.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def expanded(text: str, env: Mapping[str, str]) -> str:
    """A text with `$(NAME)` replaced; `$$` is a dollar sign, and a name that is not set stays as it is."""
    return _REFERENCE.sub(lambda found: "$" if found[0] == "$$" else env.get(found[1], found[0]), text)


def contents(objects: Objects, plural: str, namespace: str, source: Doc) -> dict[str, bytes] | None:
    """What a Secret or ConfigMap holds, by key; None where it is missing and may be.

    Raises:
        NotStartable: it is missing.
    """
    name = source.get("secretName") or source["name"]
    doc = objects.get((plural, namespace, name))
    if doc is None:
        if source.get("optional"):
            return None
        raise NotStartable("CreateContainerConfigError", f'{plural[:-1]} "{name}" not found')
    plain = {} if plural == "secrets" else {key: text.encode() for key, text in (doc.get("data") or {}).items()}
    coded = (doc.get("data") if plural == "secrets" else doc.get("binaryData")) or {}
    return plain | {key: base64.b64decode(text) for key, text in coded.items()}


def environment(objects: Objects, pod: Doc, container: Doc, api: tuple[str, int]) -> dict[str, str]:
    """The environment of a container.

    Raises:
        NotStartable: a Secret or ConfigMap, or a key of one, is missing.
    """
    namespace = pod["metadata"]["namespace"]
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/root",
        "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"],
        "KUBERNETES_SERVICE_HOST": api[0],
        "KUBERNETES_SERVICE_PORT": str(api[1]),
    }
    for source in container.get("envFrom") or ():
        for plural, word in (("secrets", "secretRef"), ("configmaps", "configMapRef")):
            found = contents(objects, plural, namespace, source[word]) if word in source else None
            env |= {source.get("prefix", "") + key: value.decode() for key, value in (found or {}).items()}
    for one in container.get("env") or ():
        value = _value(objects, pod, one["valueFrom"]) if "valueFrom" in one else expanded(one.get("value", ""), env)
        if value is not None:
            env[one["name"]] = value
    return env


def _value(objects: Objects, pod: Doc, source: Doc) -> str | None:
    if "fieldRef" in source:
        return _field(pod, source["fieldRef"]["fieldPath"])
    for plural, word in (("secrets", "secretKeyRef"), ("configmaps", "configMapKeyRef")):
        if word in source:
            namespace, ref = pod["metadata"]["namespace"], source[word]
            found = contents(objects, plural, namespace, ref)
            if found is None or (ref["key"] not in found and ref.get("optional")):
                return None
            if ref["key"] not in found:
                kind = {"secrets": "Secret", "configmaps": "ConfigMap"}[plural]
                says = f"couldn't find key {ref['key']} in {kind} {namespace}/{ref['name']}"
                raise NotStartable("CreateContainerConfigError", says)
            return found[ref["key"]].decode()
    raise NotStartable("CreateContainerConfigError", f"this stand-in of a cluster has no {' or '.join(source)}")


def _field(pod: Doc, path: str) -> str:
    if match := _KEYED.fullmatch(path):
        return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
    found = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
        "status.podIP": LOOPBACK,
        "status.hostIP": LOOPBACK,
    }.get(path)
    if found is None:
        raise NotStartable("CreateContainerConfigError", f"unsupported fieldPath: {path}")
    return str(found)


def volumes(objects: Objects, pod: Doc, folder: Path, claims: Path) -> dict[str, tuple[Path, bool]]:
    """Make the folders of a pod's volumes: each with whether it is for reading only. Claims are folders that are there.

    Raises:
        NotStartable: a Secret, a ConfigMap or the kind of a volume is missing.
    """
    made = {}
    for volume in pod["spec"].get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            made[volume["name"]] = (claims / claim["claimName"], False)
            if not made[volume["name"]][0].is_dir():
                raise NotStartable("ContainerCreating", f'persistentvolumeclaim "{claim["claimName"]}" not found')
            continue
        at = folder / volume["name"]
        at.mkdir(parents=True, exist_ok=True)
        at.chmod(0o777)
        kind = next((one for one in ("emptyDir", "secret", "configMap") if one in volume), "")
        if not kind:
            raise NotStartable(
                "ContainerCreating", f"this stand-in of a cluster has no volumes of the kind of {volume['name']}"
            )
        if kind != "emptyDir":
            plural = {"secret": "secrets", "configMap": "configmaps"}[kind]
            _write(_mounted(objects, plural, pod, volume, volume[kind]), volume[kind], at)
        made[volume["name"]] = (at, kind != "emptyDir")
    return made


def _mounted(objects: Objects, plural: str, pod: Doc, volume: Doc, source: Doc) -> dict[str, bytes]:
    says = f'MountVolume.SetUp failed for volume "{volume["name"]}" : '
    try:
        found = contents(objects, plural, pod["metadata"]["namespace"], source) or {}
        items = source.get("items")
        return found if items is None else {one["path"]: found[one["key"]] for one in items}
    except NotStartable as error:
        raise NotStartable("ContainerCreating", f"{says}{error}") from error
    except KeyError as error:
        raise NotStartable("ContainerCreating", f"{says}references non-existent config key: {error.args[0]}") from error


def _write(found: dict[str, bytes], source: Doc, at: Path) -> None:
    modes = {one["path"]: one.get("mode") for one in source.get("items") or ()}
    for name, data in found.items():
        path = at / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(modes.get(name) or source.get("defaultMode", 0o644))


def mounts(container: Doc, made: Mapping[str, tuple[Path, bool]], message: Path) -> Iterator[Doc]:
    """What a container sees where: its volumes, and the file of its termination message."""
    yield {"path": container["terminationMessagePath"], "source": str(message), "read_only": False}
    for mount in container.get("volumeMounts") or ():
        folder, is_fixed = made[mount["name"]]
        source = folder / mount.get("subPath", "")
        yield {"path": mount["mountPath"], "source": str(source), "read_only": is_fixed or mount.get("readOnly", False)}


def user(pod: Doc) -> int:
    """Number of the user that a container runs as; that of images is root.

    Raises:
        NotStartable: it must not be.
    """
    said = pod["spec"].get("securityContext") or {}
    if said.get("runAsNonRoot") and not said.get("runAsUser"):
        raise NotStartable("CreateContainerConfigError", "container has runAsNonRoot and image will run as root")
    return int(said.get("runAsUser", 0))


def command(container: Doc, env: Mapping[str, str]) -> list[str]:
    """Program and arguments of a container; empty where its image would have said them."""
    return [expanded(word, env) for word in [*(container.get("command") or ()), *(container.get("args") or ())]]


def interpreter() -> list[str]:
    """What runs `container.py`."""
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("container.py"))]
