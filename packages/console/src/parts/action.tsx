import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { isAdmin } from "../data.ts";
import { Dialog } from "./dialog.tsx";
import { showToast } from "./toast.tsx";

export interface ActionProps {
  label: string;
  /** The question of the confirmation dialog. */
  title: string;
  verb?: string;
  done: string;
  danger?: boolean;
  primary?: boolean;
  small?: boolean;
  /** Why the action is disabled. */
  disabled?: string | undefined;
  isReady?: boolean;
  onDo: () => Promise<void>;
  children?: ComponentChildren;
}

/** A button with a confirmation. Hidden for viewers; the server rejects their writes anyway. */
export function Action(props: ActionProps) {
  const {
    label,
    title,
    verb = label,
    done,
    danger,
    primary,
    small,
    disabled,
    onDo,
    children,
  } = props;
  const [isAsked, setAsked] = useState(false);
  if (!isAdmin()) return null;
  const kind = [
    danger && "button-danger-quiet",
    primary && "button-primary",
    small && "button-small",
  ];
  return (
    <>
      <button
        type="button"
        class={["button", ...kind].filter(Boolean).join(" ")}
        disabled={disabled !== undefined}
        title={disabled}
        onClick={() => setAsked(true)}
      >
        {label}
      </button>
      {isAsked && (
        <Dialog
          title={title}
          verb={verb}
          danger={danger ?? false}
          isReady={props.isReady ?? true}
          onDo={async () => {
            await onDo();
            showToast("good", done);
          }}
          onClose={() => setAsked(false)}
        >
          {children}
        </Dialog>
      )}
    </>
  );
}
