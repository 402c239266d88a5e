"use strict";

// The program is in a package for each platform, of which npm installs the right one.
const name = `@petstore/${process.platform}-${process.arch}`;

exports.program = () => {
  try {
    // Package managers other than npm may let only the project, not this package, see it.
    return require.resolve(name, { paths: [__dirname, process.cwd()] });
  } catch (cause) {
    throw new Error(`petstore needs the package ${name}: install it`, { cause });
  }
};
