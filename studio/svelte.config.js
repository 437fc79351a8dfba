// A canvas that shows a picture is a picture to a screen reader, whatever else can be done with it: role="img".
const PICTURES = "a11y_no_interactive_element_to_noninteractive_role";

export default {
  compilerOptions: { runes: true, warningFilter: (warning) => warning.code !== PICTURES },
};
