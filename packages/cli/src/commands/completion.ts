import { type Command, findAction, listActions, type Option } from '../command.js';

/** What can be completed. */
interface Completed {
  readonly commands: readonly Command[];
  readonly commonOptions: Readonly<Record<string, Option>>;
}

/** Prints a script that completes command lines; `read` because the command is one of those that it completes. */
export const createCompletion = (read: () => Completed): Command => ({
  name: 'completion',
  summary: 'Print a script that completes sibyl commands in your shell',
  usage: ['bash', 'zsh', 'fish'],
  details: [
    'bash: add to ~/.bashrc    source <(sibyl completion bash)',
    'zsh:  add to ~/.zshrc     source <(sibyl completion zsh)',
    'fish: run once            sibyl completion fish > ~/.config/fish/completions/sibyl.fish',
  ].join('\n'),
  async run({ args: [shell], output }) {
    const write = findAction({ bash: writeBash, zsh: writeZsh, fish: writeFish }, shell);
    const script = write(read());
    output.result({ shell, script }, script.trimEnd());
    return 0;
  },
});

/** In single quotes, as bash and zsh read them. */
const quote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

const listOptions = (command: Command, { commonOptions }: Completed) =>
  Object.entries({ ...command.options, ...commonOptions });

function writeBash(completed: Completed): string {
  const { commands } = completed;
  const options = commands.map((command) => {
    const names = listOptions(command, completed).map(([name]) => `--${name}`);
    return `      ${command.name}) words=${quote(names.join(' '))} ;;`;
  });
  const actions = commands.flatMap((command) => {
    const names = listActions(command);
    return names.length > 0 ? [`      ${command.name}) words=${quote(names.join(' '))} ;;`] : [];
  });
  return `# Completes sibyl in bash: source <(sibyl completion bash)
_sibyl() {
  local current=\${COMP_WORDS[COMP_CWORD]} words=''
  if ((COMP_CWORD == 1)); then
    words=${quote(commands.map(({ name }) => name).join(' '))}
  elif [[ $current == -* ]]; then
    case \${COMP_WORDS[1]} in
${options.join('\n')}
    esac
  elif ((COMP_CWORD == 2)); then
    case \${COMP_WORDS[1]} in
${actions.join('\n')}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _sibyl sibyl
`;
}

function writeZsh(completed: Completed): string {
  const { commands } = completed;
  const describe = (name: string, summary: string) =>
    quote(`${name}:${summary.replaceAll(':', '\\:')}`);
  const indent = (lines: readonly string[]) => lines.map((line) => `        ${line}`).join('\n');
  const options = commands.map((command) => {
    const lines = listOptions(command, completed).map(([name, { summary }]) =>
      describe(`--${name}`, summary),
    );
    return `      ${command.name}) found=(\n${indent(lines)}\n      ) ;;`;
  });
  const actions = commands.flatMap((command) => {
    const names = listActions(command);
    return names.length > 0 ? [`      ${command.name}) found=(${names.join(' ')}) ;;`] : [];
  });
  return `#compdef sibyl
# Completes sibyl in zsh: source <(sibyl completion zsh)
_sibyl() {
  local -a found
  if ((CURRENT == 2)); then
    found=(
${indent(commands.map(({ name, summary }) => describe(name, summary)))}
    )
  elif [[ $words[CURRENT] == -* ]]; then
    case $words[2] in
${options.join('\n')}
    esac
  elif ((CURRENT == 3)); then
    case $words[2] in
${actions.join('\n')}
    esac
  fi
  if (($#found)); then _describe sibyl found; else _files; fi
}
if [[ $funcstack[1] == _sibyl ]]; then _sibyl "$@"; else compdef _sibyl sibyl; fi
`;
}

function writeFish(completed: Completed): string {
  // In single quotes fish reads \\ and \' only.
  const quoteFish = (text: string) => `'${text.replaceAll(/[\\']/g, '\\$&')}'`;
  const lines = completed.commands.flatMap((command) => {
    const { name, summary } = command;
    const within = `-n ${quoteFish(`__fish_seen_subcommand_from ${name}`)}`;
    const actions = listActions(command);
    const first = `-n ${quoteFish(`__fish_seen_subcommand_from ${name}; and not __fish_seen_subcommand_from ${actions.join(' ')}`)}`;
    return [
      `complete -c sibyl -f -n __fish_use_subcommand -a ${name} -d ${quoteFish(summary)}`,
      ...actions.map((action) => `complete -c sibyl -f ${first} -a ${action}`),
      ...listOptions(command, completed).map(([option, { short, type, summary: text }]) => {
        const flags = `-l ${option}${short ? ` -s ${short}` : ''}${type === 'string' ? ' -r' : ''}`;
        return `complete -c sibyl ${within} ${flags} -d ${quoteFish(text)}`;
      }),
    ];
  });
  return `# Completes sibyl in fish: sibyl completion fish > ~/.config/fish/completions/sibyl.fish\n${lines.join('\n')}\n`;
}
