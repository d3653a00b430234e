import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

export function Field({
  label,
  hint,
  children,
}: {
  label: string;
  hint?: string;
  children: (ids: { id: string; "aria-describedby"?: string }) => ComponentChildren;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, ...(hint && { "aria-describedby": `${id}-hint` }) })}
      {hint && (
        <p id={`${id}-hint`} class="hint">
          {hint}
        </p>
      )}
    </div>
  );
}

export interface TextFieldProps {
  label: string;
  hint?: string;
  value: string;
  onChange: (value: string) => void;
  placeholder?: string;
  required?: boolean;
  mono?: boolean;
  lines?: number;
}

export function TextField({ label, hint, value, onChange, lines, mono, ...rest }: TextFieldProps) {
  const shared = {
    value,
    spellcheck: false,
    autocomplete: "off",
    class: mono ? "mono" : "",
    ...rest,
  };
  return (
    <Field label={label} {...(hint && { hint })}>
      {(ids) =>
        lines ? (
          <textarea
            {...shared}
            {...ids}
            rows={lines}
            onInput={(event) => onChange(event.currentTarget.value)}
          />
        ) : (
          <input {...shared} {...ids} onInput={(event) => onChange(event.currentTarget.value)} />
        )
      }
    </Field>
  );
}

export function SelectField({
  label,
  hint,
  value,
  onChange,
  of,
}: {
  label: string;
  hint?: string;
  value: string;
  onChange: (value: string) => void;
  of: { value: string; label: string }[];
}) {
  return (
    <Field label={label} {...(hint && { hint })}>
      {(ids) => (
        <select {...ids} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
          {of.map(({ value, label }) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

/** A choice of two or three options with explanations. */
export function RadioField({
  label,
  value,
  onChange,
  of,
}: {
  label: string;
  value: string;
  onChange: (value: string) => void;
  of: { value: string; label: string; hint: string }[];
}) {
  const name = useId();
  return (
    <fieldset class="radios">
      <legend>{label}</legend>
      <div class="radio-row">
        {of.map((choice) => (
          <label key={choice.value} class="radio">
            <input
              type="radio"
              name={name}
              checked={value === choice.value}
              onChange={() => onChange(choice.value)}
            />
            <span>
              <strong>{choice.label}</strong>
              <span class="hint">{choice.hint}</span>
            </span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}
