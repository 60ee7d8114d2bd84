import { type Command, UsageError } from '../command.js';
import { createProject } from '../scaffold/create-project.js';

/** Writes the project of a custom oracle. */
export const newOracle: Command = {
  name: 'new',
  summary: 'Make the project of an oracle of your own',
  usage: ['<name> [--packages <folder>] [--no-install]'],
  details:
    'Writes a folder of that name with a plugin, its test and a configuration, and installs what it needs: "npm test" and "npm start" then work at once.',
  options: {
    packages: {
      type: 'string',
      value: 'folder',
      summary: 'Take the packages of Sibyl from tarballs in this folder, not from the registry',
    },
    'no-install': { type: 'boolean', summary: 'Write the files only' },
  },
  async run({ args: [name], options, output }) {
    if (!name || !/^[a-z][a-z0-9-]{0,63}$/.test(name)) {
      throw new UsageError('Give it a name: lower case letters, digits and -, such as my-oracle');
    }
    const { packages } = options;
    const isInstalled = !options['no-install'];
    const project = await createProject({
      name,
      packages: typeof packages === 'string' ? packages : undefined,
      isInstalled,
      output,
    });
    const steps = [`cd ${name}`, ...(isInstalled ? [] : ['npm install']), 'npm test', 'npm start'];
    output.result(project, [`Made ${project.folder}. Next:`, ...steps].join('\n  '));
    return 0;
  },
};
