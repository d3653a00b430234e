import type { DeploymentPatch, DeploymentView } from "@tenure/protocol";
import { useState } from "preact/hooks";
import { call } from "../../api.ts";
import { deployments, nodes } from "../../data.ts";
import { draftOf, isEditable } from "../../model/spec.ts";
import { Action } from "../../parts/action.tsx";
import { SelectField, TextField } from "../../parts/fields.tsx";
import { showToast } from "../../parts/toast.tsx";
import { go } from "../../router.ts";
import { DeploymentForm } from "./deployment-form.tsx";

/** Actions on one deployment. A change names the revision that it is based on. */
export function DeploymentActions({ view }: { view: DeploymentView }) {
  const params = { id: view.id };
  const change = async (body: DeploymentPatch) =>
    deployments.put(
      await call("updateDeployment", { params, body: { ...body, if_revision: view.revision } }),
    );
  return (
    <>
      <Action
        label="Restart"
        title={`Restart ${view.name}?`}
        done={`${view.name} is being restarted`}
        onDo={async () => deployments.put(await call("restartDeployment", { params }))}
      >
        <p>The process is stopped within its grace period and started again on the same node.</p>
      </Action>
      {view.package_name !== "" && <RollOut view={view} onDo={change} />}
      <Edit view={view} onDo={change} />
      {view.type !== "daemon" && <Pin view={view} onDo={change} />}
      {view.enabled ? (
        <Action
          label="Disable"
          title={`Disable ${view.name}?`}
          done={`${view.name} is disabled`}
          onDo={() => change({ enabled: false })}
        >
          <p>The process stops. The deployment keeps its owner and its history.</p>
        </Action>
      ) : (
        <Action
          label="Enable"
          title={`Enable ${view.name}?`}
          done={`${view.name} is enabled`}
          primary
          onDo={() => change({ enabled: true })}
        >
          <p>
            {view.type === "daemon"
              ? "Every node that its selector matches starts it."
              : "Its owner starts it. Without an owner, a node claims it."}
          </p>
        </Action>
      )}
      <Delete view={view} />
    </>
  );
}

interface Change {
  view: DeploymentView;
  onDo: (body: DeploymentPatch) => Promise<void>;
}

function RollOut({ view, onDo }: Change) {
  const [version, setVersion] = useState(view.package_version);
  return (
    <Action
      label="Roll out"
      title={`Roll out another version of ${view.package_name}`}
      done={`${view.name} is changing to ${version}`}
      isReady={version.trim() !== "" && version !== view.package_version}
      onDo={() => onDo({ package_version: version.trim() })}
    >
      <p>The node installs the new version and then replaces the old process.</p>
      <TextField label="Version" value={version} onChange={setVersion} mono />
    </Action>
  );
}

function Edit({ view, onDo }: Change) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button
        type="button"
        class="button"
        disabled={!isEditable(view)}
        title={
          isEditable(view)
            ? undefined
            : "an argument or variable contains a line break: use `tenure deployment apply`"
        }
        onClick={() => setOpen(true)}
      >
        Edit
      </button>
      {isOpen && (
        <DeploymentForm
          title={`Edit ${view.name}`}
          verb="Save"
          before={draftOf(view)}
          onSave={async (changes) => {
            await onDo(changes);
            showToast("good", `${view.name} was changed`);
          }}
          onClose={() => setOpen(false)}
        />
      )}
    </>
  );
}

function Pin({ view, onDo }: Change) {
  const pinned = view.selector.address ?? "";
  const [address, setAddress] = useState(pinned);
  const units = [...nodes.state.value.rows.values()].filter(
    (node) => node.node_unit && node.online,
  );
  const known = units.some(({ node_id }) => node_id === pinned);
  return (
    <Action
      label={pinned ? "Pinned" : "Pin"}
      title={`Pin ${view.name} to a node`}
      verb="Save"
      done={address ? `${view.name} is pinned` : `${view.name} may run on any node`}
      isReady={address !== pinned}
      onDo={() => onDo({ pin: address === "" ? null : address })}
    >
      <p>A pinned deployment runs only on that node, even if the node is lost.</p>
      <SelectField
        label="Node"
        value={address}
        onChange={setAddress}
        of={[
          { value: "", label: "any node" },
          ...(pinned && !known ? [{ value: pinned, label: `${pinned} (offline)` }] : []),
          ...units.map(({ node_id, name }) => ({
            value: node_id,
            label: `${name} (${node_id.slice(0, 8)}…)`,
          })),
        ]}
      />
    </Action>
  );
}

function Delete({ view }: { view: DeploymentView }) {
  const [typed, setTyped] = useState("");
  return (
    <Action
      label="Delete"
      title={`Delete ${view.name}?`}
      done={`${view.name} was deleted`}
      danger
      isReady={typed === view.name}
      onDo={async () => {
        await call("deleteDeployment", { params: { id: view.id } });
        deployments.remove(view.id);
        go("/deployments");
      }}
    >
      <p>
        The node stops the process. Specification and history are deleted. This cannot be undone.
      </p>
      <TextField label={`Type ${view.name} to confirm`} value={typed} onChange={setTyped} mono />
    </Action>
  );
}
