"""What conditions and reasons mean and what to do about them, for the API reference. Text only."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from epd.api.names import ANNOTATION_ADOPT_ROOT, ConditionType, Reason

CONDITIONS: Final = MappingProxyType(
    {
        ConditionType.AVAILABLE: "True: a request can be answered now. Stays True through rollouts and scaling.",
        ConditionType.READY: "True: everything is as the spec says; also when suspended as asked. Wait for this one.",
        ConditionType.RECONCILING: "True: the operator, or a rollout, is at work. With Stalled, the pair that kstatus "
        "(Flux, helm) reads.",
        ConditionType.STALLED: "True: only you can mend it, the message says how; retrying is of no use.",
        ConditionType.STORAGE_READY: "True: the encoder cache's claim is bound and the engines' user can work on it.",
        ConditionType.ENCODE_READY: "True: all encoders are up and of the newest template. Absent without encode.",
        ConditionType.PREFILL_DECODE_READY: "True: all engines of prefillDecode are up and of the newest template.",
        ConditionType.PROXY_READY: "True: all proxy pods are up and of the newest template.",
        ConditionType.ENCODER_CACHE_HEALTHY: "True: the store of embeddings is kept within its marks by its collector. "
        "False: it is not, but requests go on. Absent where the operator keeps no store.",
        ConditionType.UPDATE_AVAILABLE: "True: this version of the operator would render the engines differently. "
        "They keep running as they are until the spec changes; change restartedAt to take it now.",
    }
)
"""Type -> what it says."""

REASONS: Final = MappingProxyType(
    {
        Reason.PENDING: "Not looked at yet, or a child is being made. Wait.",
        Reason.ALL_READY: "Everything is as the spec says.",
        Reason.ROLLING_OUT: "New pods replace old ones; requests go on.",
        Reason.STARTING: "Pods start and load the model, which takes minutes.",
        Reason.SUSPENDED: "spec.suspend is true: no engine runs.",
        Reason.PAUSED: "spec.paused is true, and the children differ from the spec.",
        Reason.SERVING: "Requests are answered.",
        Reason.NOT_SERVING: "No proxy or no generating engine is ready; the message says which.",
        Reason.AS_SPECIFIED: "Nothing is left to do.",
        Reason.RETRYING: "A call failed for a reason that may pass; it is tried again.",
        Reason.INVALID_SPEC: "The spec contradicts itself in a way that the schema cannot show.",
        Reason.OWNED_FIELD: "A flag, variable or field that the operator sets was given; the message names the field "
        "to use.",
        Reason.NAME_TAKEN: "An object of a child's name is there and not ours. Delete or rename one of the two.",
        Reason.REJECTED_BY_API_SERVER: "The API server refused a child; its words are quoted, often a typo in a "
        "podTemplate.",
        Reason.UNSUPPORTED_ENGINE: "The engine is older than the first release whose encoders can stand alone, or that "
        "the connector can be loaded into. Take a newer image or, where the message says so, connector: Example.",
        Reason.BOUND: "The claim is bound.",
        Reason.SINGLE_NODE: "The claim can be mounted on one node, so all engines run there.",
        Reason.NO_STORAGE: "The deployment keeps its encoder cache on no volume.",
        Reason.CLAIM_NOT_FOUND: "The claim you named is not in the namespace.",
        Reason.CLAIM_PENDING: "The claim is not bound; the provisioner's words are quoted.",
        Reason.WAITING_FOR_FIRST_CONSUMER: "The claim is bound when its first pod has a node.",
        Reason.STORAGE_CLASS_NOT_FOUND: "The StorageClass is not there. `kubectl get storageclass` lists them.",
        Reason.NO_DEFAULT_STORAGE_CLASS: "No StorageClass is named and the cluster has no default one.",
        Reason.ACCESS_MODE_NOT_SUPPORTED: "The class or claim cannot be shared in the way asked for.",
        Reason.CHECKING: "A Job tries whether the engines' user can work on the claim.",
        Reason.NOT_WRITABLE: "The engines' user cannot write to the claim; the message has owner, mode and the fix.",
        Reason.REDUCED_GUARANTEES: "The volume can be used but lacks something; the message says what and what it "
        "costs.",
        Reason.HEALTHY: "The collector runs, the root is this claim's and usage is within its marks.",
        Reason.COLLECTOR_NOT_RUNNING: "The collector is not up or does not answer: nothing is deleted and usage is "
        "not known. Its pod's own reason is quoted.",
        Reason.COLLECTION_DISABLED: "garbageCollection.enabled is false at one of the claim's users: nothing is "
        "deleted, and nothing stops the store from growing.",
        Reason.COLLECTION_FAILED: "A pass over the store did not come to its end; the error is quoted. It is tried "
        "again.",
        Reason.DRY_RUN: "garbageCollection.dryRun is true at one of the claim's users: the collector says what it "
        "would delete, and deletes nothing.",
        Reason.LIVENESS_UNKNOWN: "The collector cannot find out which versions are in use: the API server did not "
        "answer, not completely, or with suspiciously few. Until it does, no version is deleted.",
        Reason.CLOCK_UNRELIABLE: "The file server's clock went backwards or jumped: nothing is deleted until it is "
        "steady.",
        Reason.ROOT_OWNED_BY_ANOTHER_CLAIM: "Another claim keeps its cache in the same directory of the same file "
        "system; nothing is deleted here. Give each claim a directory, or take the root over with the annotation "
        f"{ANNOTATION_ADOPT_ROOT} on the claim, whose value the message names.",
        Reason.FOREIGN_DATA_DOMINATES: "The volume is full of what is not the cache's; deleting entries would not "
        "help. Make room, or use a volume or sub-path quota of its own.",
        Reason.OVER_WATERMARK: "Usage stays above the high watermark although nothing more may be deleted: what is "
        "left is in use. Grow the claim or shorten minIdle.",
        Reason.VERSION_IN_USE_BY_STRANGER: "A version that no object of the namespace names is being read or written. "
        "It is kept; find who mounts the claim.",
        Reason.USERS_DISAGREE: "EPDDeployments that share the claim ask for different users or groups; the collector "
        "runs with those of the oldest. Make securityContext the same in all.",
        Reason.VERSION_CONDEMNED: "An Event: no one uses the version any more; it goes after versionGracePeriod.",
        Reason.VERSION_REMOVED: "An Event: a version that no one used was deleted.",
        Reason.ENTRIES_REMOVED: "An Event: entries were deleted to stay within the marks or because of their age.",
        Reason.RECLAIMING: "An Event: the entries of an object that goes are deleted from a claim of yours.",
        Reason.RECLAIMED: "An Event: these entries are deleted.",
        Reason.RECLAIM_GIVEN_UP: "An Event: these entries could not be deleted in time, and the object goes without. "
        "Delete the directories that the message names.",
        Reason.IMAGE_PULL: "An image cannot be pulled: a wrong name, a missing pull secret, or no network.",
        Reason.UNSCHEDULABLE: "No node takes the pod; the scheduler's words are quoted.",
        Reason.INSUFFICIENT_DEVICES: "No node has enough free devices (GPUs).",
        Reason.INSUFFICIENT_CAPACITY_FOR_SURGE: "The extra pod of a rollout finds no free device; the message names "
        "the field that mends it.",
        Reason.SECRET_NOT_FOUND: "A Secret that a pod needs is not in the namespace.",
        Reason.SECRET_KEY_MISSING: "A Secret is there without the key that a pod needs.",
        Reason.CONFIG_ERROR: "The kubelet cannot make the container; its words are quoted.",
        Reason.OOM_KILLED: "The container ran out of memory.",
        Reason.CRASH_LOOP: "The container ends again and again; its last line is quoted.",
        Reason.MODEL_HAS_NO_ENCODER: "The model has no media encoder. Remove spec.encode.",
        Reason.FAILED_CREATE: "Pods cannot be made: quota, Pod Security or an admission webhook, quoted.",
        Reason.UPDATE_AVAILABLE: "See the condition of this name.",
        Reason.UP_TO_DATE: "What runs is what this version of the operator renders.",
    }
)
"""Reason -> what it means and what to do. In Ready and in Events a part's reason has the part before it, such as
`EncodeImagePull`."""
