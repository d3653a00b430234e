import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { asApiError } from "../resource.ts";
import { Icon } from "./icons.tsx";
import { Text } from "./text.tsx";

export interface DialogProps {
  title: string;
  /** Label of the confirming button, a verb. */
  verb: string;
  danger?: boolean;
  isReady?: boolean;
  onDo: () => Promise<void>;
  onClose: () => void;
  children: ComponentChildren;
}

/** A native dialog: keeps the focus inside, closes with Escape and restores the focus. */
export function Dialog({
  title,
  verb,
  danger = false,
  isReady = true,
  onDo,
  onClose,
  children,
}: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState("");
  useLayoutEffect(() => dialog.current?.showModal(), []);

  async function run(event: Event): Promise<void> {
    event.preventDefault();
    if (isBusy || !isReady) return;
    setBusy(true);
    setFailure("");
    try {
      await onDo();
      onClose();
    } catch (error) {
      const { message, code } = asApiError(error);
      setFailure(`${message} (${code})`);
      setBusy(false);
    }
  }

  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="dialog-title" onClose={onClose}>
      <form method="dialog" onSubmit={run}>
        <header class="dialog-head">
          <h2 id="dialog-title">
            <Text>{title}</Text>
          </h2>
          <button type="button" class="icon-button" aria-label="Close" onClick={onClose}>
            <Icon name="close" />
          </button>
        </header>
        <div class="dialog-body">{children}</div>
        {failure && (
          <p class="form-failure" role="alert">
            <Text>{failure}</Text>
          </p>
        )}
        <footer class="dialog-foot">
          <button type="button" class="button" onClick={onClose}>
            Cancel
          </button>
          <button
            type="submit"
            class={danger ? "button button-danger" : "button button-primary"}
            disabled={isBusy || !isReady}
          >
            {isBusy ? "…" : verb}
          </button>
        </footer>
      </form>
    </dialog>
  );
}
