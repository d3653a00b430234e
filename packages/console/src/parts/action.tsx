import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { isAdmin } from "../data.ts";
import { Dialog } from "./dialog.tsx";
import { tell } from "./toast.tsx";

export interface ActionProps {
  label: string;
  /** Asked before anything happens: what it will do, in words. */
  title: string;
  verb?: string;
  done: string;
  danger?: boolean;
  primary?: boolean;
  small?: boolean;
  /** Why it makes no sense now. */
  disabled?: string | undefined;
  isReady?: boolean;
  onDo: () => Promise<void>;
  children?: ComponentChildren;
}

/** A button that asks first. Whoever may not act does not see it; the server would refuse it anyway. */
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
            tell("good", done);
          }}
          onClose={() => setAsked(false)}
        >
          {children}
        </Dialog>
      )}
    </>
  );
}
